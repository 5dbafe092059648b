"""Accepting drafts in Triton: one program walks the columns of a lane over its candidates."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.sampling.kernel import draw_words, exponential_noise, kept_weights, race
from ninfer_kernels.sampling.parameters import (
    ACCEPT,
    CANDIDATES,
    RESAMPLE,
    SAMPLE,
    Candidates,
    SamplingParameters,
)
from ninfer_kernels.speculation.verdict import Drafts, Verdict


@triton.jit
def accept_kernel(
    ids_ptr,
    logits_ptr,
    candidate_flags_ptr,
    drafts_ptr,
    draft_ids_ptr,
    draft_probabilities_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    seed_ptr,
    position_ptr,
    columns_ptr,
    accepted_ptr,
    tokens_ptr,
    emitted_ptr,
    flags_ptr,
    W,
    C,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    ACCEPT: tl.constexpr,
    RESAMPLE: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    i_l = tl.program_id(0)
    o_k = tl.arange(0, K)
    n_columns = tl.load(columns_ptr + i_l)
    temperature = tl.load(temperature_ptr + i_l)
    top_k = tl.load(top_k_ptr + i_l)
    top_p = tl.load(top_p_ptr + i_l)
    min_p = tl.load(min_p_ptr + i_l)
    seed = tl.load(seed_ptr + i_l)
    position = tl.load(position_ptr + i_l)
    flag = n_columns * 0
    for i in range(n_columns):
        flag |= tl.load(candidate_flags_ptr + i_l * W + i)
    if not WIDE:
        narrow = ((top_k >= 1) & (top_k <= K)) | (temperature <= 0.0) | (n_columns <= 0)
        flag |= tl.where(narrow, 0, 2)
    n_accepted = n_columns * 0
    token = n_columns * 0
    if (n_columns > 0) & (flag == 0):
        going = n_columns > 1
        while going:
            i_r = i_l * W + n_accepted
            b_ids = tl.load(ids_ptr + i_r * K + o_k)
            b_x = tl.load(logits_ptr + i_r * K + o_k)
            b_w = kept_weights(b_x, o_k, temperature, top_k, top_p, min_p)
            i_d = i_l * (W - 1) + n_accepted
            draft = tl.load(drafts_ptr + i_d)
            p = tl.sum(tl.where(b_ids == draft, b_w / tl.sum(b_w, 0), 0.0), 0)
            q = p * 0.0
            for j in range(C):
                m_same = tl.load(draft_ids_ptr + i_d * C + j) == draft
                q += tl.where(m_same, tl.load(draft_probabilities_ptr + i_d * C + j), 0.0)
            # A block of one: the counter words are blocks elsewhere too.
            b_zero = tl.zeros((1,), tl.int32)
            b_word, _, _, _ = draw_words(seed, position + n_accepted, ACCEPT, b_zero)
            u = tl.sum((b_word >> 8).to(tl.float32), 0) * 5.9604644775390625e-8
            stands = u * q < p
            n_accepted += stands.to(tl.int32)
            going = stands & (n_accepted < n_columns - 1)
        i_r = i_l * W + n_accepted
        b_ids = tl.load(ids_ptr + i_r * K + o_k)
        b_x = tl.load(logits_ptr + i_r * K + o_k)
        b_w = kept_weights(b_x, o_k, temperature, top_k, top_p, min_p)
        purpose = SAMPLE
        if n_accepted < n_columns - 1:
            purpose = RESAMPLE
            b_w = b_w / tl.sum(b_w, 0)
            i_d = i_l * (W - 1) + n_accepted
            b_q = tl.zeros((K,), tl.float32)
            for j in range(C):
                m_same = b_ids == tl.load(draft_ids_ptr + i_d * C + j)
                b_q += tl.where(m_same, tl.load(draft_probabilities_ptr + i_d * C + j), 0.0)
            b_rest = tl.maximum(b_w - b_q, 0.0)
            # Rounding may leave nothing of p - q although a draft fell: then p itself serves.
            b_w = tl.where(tl.sum(b_rest, 0) > 0.0, b_rest, b_w)
        b_noise = exponential_noise(seed, position + n_accepted, purpose, b_ids)
        token = race(b_w, b_noise, b_ids)
    fine = (n_columns > 0) & (flag == 0)
    tl.store(accepted_ptr + i_l, n_accepted)
    tl.store(emitted_ptr + i_l, tl.where(fine, n_accepted + 1, 0))
    tl.store(flags_ptr + i_l, flag)
    for i in range(W):
        m_draft = i < n_accepted
        draft = tl.load(drafts_ptr + i_l * (W - 1) + i, m_draft, 0)
        tl.store(tokens_ptr + i_l * W + i, tl.where((i == n_accepted) & fine, token, draft))


@triton.jit
def commit_kernel(slots_ptr, columns_ptr, emitted_ptr, committed_ptr):
    i_l = tl.program_id(0)
    if tl.load(columns_ptr + i_l) > 0:
        tl.store(committed_ptr + tl.load(slots_ptr + i_l), tl.load(emitted_ptr + i_l))


def launch_accept(
    candidates: Candidates,
    drafts: Drafts,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
    wide: bool,
    out: Verdict,
) -> None:
    lanes, width = out.tokens.shape
    accept_kernel[(lanes,)](
        candidates.ids,
        candidates.logits,
        candidates.flags,
        drafts.tokens,
        drafts.ids,
        drafts.probabilities,
        parameters.temperature,
        parameters.top_k,
        parameters.top_p,
        parameters.min_p,
        parameters.seed,
        position,
        columns,
        out.accepted,
        out.tokens,
        out.emitted,
        out.flags,
        width,
        drafts.ids.shape[2],
        K=CANDIDATES,
        WIDE=wide,
        ACCEPT=ACCEPT,
        RESAMPLE=RESAMPLE,
        SAMPLE=SAMPLE,
        num_warps=1,
    )


def launch_commit(
    slots: torch.Tensor, columns: torch.Tensor, emitted: torch.Tensor, committed: torch.Tensor
) -> None:
    commit_kernel[(columns.numel(),)](slots, columns, emitted, committed, num_warps=1)


_FLOATS = ("logits", "draft_probabilities", "temperature", "top_p", "min_p")


def _argument_type(argument: str) -> str:
    if argument == "seed_ptr":
        return "*i64"
    if argument.removesuffix("_ptr") in _FLOATS:
        return "*fp32"
    return "*i32" if argument.endswith("_ptr") else "i32"


def _compile(name: str, kernel: Any, **constants: int) -> Compilation:
    signature = {
        argument: _argument_type(argument)
        for argument in kernel.arg_names
        if argument not in constants
    }
    return Compilation(
        name=f"speculation_{name}",
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=tuple(a for a in signature if a.endswith("_ptr")),
        num_warps=1,
    )


COMPILATIONS = (
    _compile(
        "accept",
        accept_kernel,
        K=CANDIDATES,
        WIDE=False,
        ACCEPT=ACCEPT,
        RESAMPLE=RESAMPLE,
        SAMPLE=SAMPLE,
    ),
    _compile("commit", commit_kernel),
)
