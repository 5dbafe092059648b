"""Penalties, bias and token masks in Triton. Sizes: V vocabulary, E drafts, B biases of a row."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.sampling.parameters import Penalties

BLOCK = 1024


@triton.jit
def penalty_kernel(
    logits_ptr,
    lanes_ptr,
    repetition_ptr,
    presence_ptr,
    frequency_ptr,
    counts_ptr,
    prompt_ptr,
    drafts_ptr,
    mask_ptr,
    out_ptr,
    V,
    E,
    stride_row,
    out_stride_row,
    HAS_PROMPT: tl.constexpr,
    HAS_MASK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_r = tl.program_id(1).to(tl.int64)
    i_l = tl.load(lanes_ptr + i_r).to(tl.int64)
    o_v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_v = o_v < V
    b_x = tl.load(logits_ptr + i_r * stride_row + o_v, m_v, 0.0).to(tl.float32)
    b_count = tl.load(counts_ptr + i_l * V + o_v, m_v, 0)
    for i in range(E):
        b_count += (o_v == tl.load(drafts_ptr + i_r * E + i)).to(tl.int32)
    m_seen = b_count > 0
    m_known = m_seen
    if HAS_PROMPT:
        m_known = m_seen | (tl.load(prompt_ptr + i_l * V + o_v, m_v, 0) != 0)
    repetition = tl.load(repetition_ptr + i_l)
    b_repeated = tl.where(b_x > 0.0, b_x / repetition, b_x * repetition)
    b_y = tl.where(m_known, b_repeated, b_x)
    b_y -= tl.load(frequency_ptr + i_l) * b_count.to(tl.float32)
    b_y -= tl.where(m_seen, tl.load(presence_ptr + i_l), 0.0)
    b_x = tl.where(b_x == float("-inf"), b_x, b_y)
    if HAS_MASK:
        b_word = tl.load(mask_ptr + i_r * tl.cdiv(V, 32) + (o_v >> 5), m_v, 0)
        b_x = tl.where(((b_word >> (o_v & 31)) & 1) != 0, b_x, float("-inf"))
    tl.store(out_ptr + i_r * out_stride_row + o_v, b_x, m_v)


@triton.jit
def bias_kernel(
    lanes_ptr, bias_ids_ptr, bias_values_ptr, out_ptr, V, B, out_stride_row, BLOCK: tl.constexpr
):
    """Runs after the mask: -inf stays -inf whatever is added, so the order is kept."""
    i_r = tl.program_id(0).to(tl.int64)
    i_l = tl.load(lanes_ptr + i_r).to(tl.int64)
    for i in range(0, B, BLOCK):
        o_b = i + tl.arange(0, BLOCK)
        b_id = tl.load(bias_ids_ptr + i_l * B + o_b, o_b < B, -1)
        b_bias = tl.load(bias_values_ptr + i_l * B + o_b, o_b < B, 0.0)
        p_out = out_ptr + i_r * out_stride_row + b_id
        m_b = (b_id >= 0) & (b_id < V)
        b_x = tl.load(p_out, m_b, 0.0)
        tl.store(p_out, b_x + b_bias, m_b & (b_x != float("-inf")))


@triton.jit
def count_kernel(counts_ptr, lanes_ptr, tokens_ptr, emitted_ptr, V, W):
    i_l = tl.program_id(0)
    p_counts = counts_ptr + tl.load(lanes_ptr + i_l).to(tl.int64) * V
    for i in range(tl.load(emitted_ptr + i_l)):
        token = tl.load(tokens_ptr + i_l * W + i)
        tl.atomic_add(p_counts + token, 1, mask=(token >= 0) & (token < V))


def launch_penalties(
    logits: torch.Tensor,
    lanes: torch.Tensor,
    penalties: Penalties,
    counts: torch.Tensor,
    prompt: torch.Tensor | None,
    drafts: torch.Tensor | None,
    bias_ids: torch.Tensor | None,
    bias_values: torch.Tensor | None,
    mask: torch.Tensor | None,
    out: torch.Tensor,
) -> torch.Tensor:
    rows, vocabulary = logits.shape
    # Absent tensors are never read; any address serves.
    penalty_kernel[(triton.cdiv(vocabulary, BLOCK), rows)](
        logits,
        lanes,
        penalties.repetition,
        penalties.presence,
        penalties.frequency,
        counts,
        counts if prompt is None else prompt,
        counts if drafts is None else drafts,
        counts if mask is None else mask,
        out,
        vocabulary,
        0 if drafts is None else drafts.shape[1],
        logits.stride(0),
        out.stride(0),
        HAS_PROMPT=prompt is not None,
        HAS_MASK=mask is not None,
        BLOCK=BLOCK,
    )
    if bias_ids is not None and bias_values is not None:
        bias_kernel[(rows,)](
            lanes, bias_ids, bias_values, out, vocabulary, bias_ids.shape[1], out.stride(0),
            BLOCK=128,
        )  # fmt: skip
    return out


def launch_counts(
    counts: torch.Tensor, lanes: torch.Tensor, tokens: torch.Tensor, emitted: torch.Tensor
) -> None:
    count_kernel[(tokens.shape[0],)](
        counts, lanes, tokens, emitted, counts.shape[1], tokens.shape[1], num_warps=1
    )


_TYPES = {
    "logits_ptr": "*fp32",
    "repetition_ptr": "*fp32",
    "presence_ptr": "*fp32",
    "frequency_ptr": "*fp32",
    "prompt_ptr": "*u8",
    "bias_values_ptr": "*fp32",
    "out_ptr": "*fp32",
}


def _compile(name: str, kernel: Any, **constants: int) -> Compilation:
    signature = {
        argument: _TYPES.get(argument, "*i32" if argument.endswith("_ptr") else "i32")
        for argument in kernel.arg_names
        if argument not in constants
    }
    return Compilation(
        name=f"sampling_{name}",
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=tuple(a for a in signature if a.endswith("_ptr")),
        num_warps=1 if name == "count" else 4,
        max_registers=64,
    )


COMPILATIONS = (
    _compile("penalty", penalty_kernel, HAS_PROMPT=True, HAS_MASK=True, BLOCK=BLOCK),
    _compile("bias", bias_kernel, BLOCK=128),
    _compile("count", count_kernel),
)
