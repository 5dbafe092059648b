"""Candidates and choice of tokens in Triton; the law is that of `reference`.

Sizes: V vocabulary, K candidates. `select_kernel` orders blocks of a row, `merge_kernel` the best
of all blocks; the others work on the K candidates of a row.
"""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.sampling.parameters import (
    BLOCK,
    CANDIDATES,
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    Candidates,
    CandidateWorkspace,
    SamplingParameters,
)

# Below the key of every token.
LAST = tl.constexpr(-0x7FFFFFFFFFFFFFFF)
LEAST = tl.constexpr(LEAST_TEMPERATURE)
MOST = tl.constexpr(MOST_TEMPERATURE)


@triton.jit
def pack_keys(x, o_v):
    """int64 keys, all distinct, whose descending order is by logit, then by lower index."""
    # Adding 0 makes -0 and 0 equal.
    b_bits = (x + 0.0).to(tl.int32, bitcast=True)
    b_rising = tl.where(b_bits < 0, b_bits ^ 0x7FFFFFFF, b_bits)
    return (b_rising.to(tl.int64) << 32) | (0x7FFFFFFF - o_v).to(tl.int64)


@triton.jit(do_not_specialize=["n_wanted"])
def select_kernel(
    logits_ptr,
    keys_ptr,
    largest_ptr,
    sums_ptr,
    flags_ptr,
    V,
    stride_row,
    n_wanted,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
):
    i_b = tl.program_id(0)
    i_r = tl.program_id(1).to(tl.int64)
    o_v = i_b * BLOCK + tl.arange(0, BLOCK)
    m_v = o_v < V
    b_x = tl.load(logits_ptr + i_r * stride_row + o_v, m_v, float("-inf")).to(tl.float32)
    i_p = i_r * tl.num_programs(0) + i_b
    m_bad = (b_x != b_x) | (b_x == float("inf"))
    tl.store(flags_ptr + i_p, tl.max(m_bad.to(tl.int32), 0))
    b_x = tl.where(m_bad, float("-inf"), b_x)
    b_max = tl.max(b_x, 0)
    tl.store(largest_ptr + i_p, b_max)
    b_shift = tl.where(b_max == float("-inf"), 0.0, b_max)
    tl.store(sums_ptr + i_p, tl.sum(tl.exp(b_x - b_shift), 0))
    # Places past the end sort after every token, -inf included.
    b_keys = tl.where(m_v, pack_keys(b_x, o_v), LAST)
    for i in range(n_wanted):
        best = tl.max(b_keys, 0)
        b_keys = tl.where(b_keys == best, LAST, b_keys)
        tl.store(keys_ptr + i_p * K + i, best)


@triton.jit(do_not_specialize=["n_wanted"])
def merge_kernel(
    keys_ptr,
    largest_ptr,
    sums_ptr,
    block_flags_ptr,
    ids_ptr,
    logits_ptr,
    log_sum_ptr,
    flags_ptr,
    BLOCKS,
    n_wanted,
    K: tl.constexpr,
    TILE: tl.constexpr,
):
    """TILE is at least BLOCKS * K."""
    i_r = tl.program_id(0).to(tl.int64)
    o_b = tl.arange(0, TILE // K)
    m_b = o_b < BLOCKS
    b_max = tl.load(largest_ptr + i_r * BLOCKS + o_b, m_b, float("-inf"))
    largest = tl.max(b_max, 0)
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    b_sum = tl.load(sums_ptr + i_r * BLOCKS + o_b, m_b, 0.0) * tl.exp(b_max - shift)
    tl.store(log_sum_ptr + i_r, shift + tl.log(tl.sum(b_sum, 0)))
    bad = tl.max(tl.load(block_flags_ptr + i_r * BLOCKS + o_b, m_b, 0), 0)
    tl.store(flags_ptr + i_r, tl.maximum(bad, (largest == float("-inf")).to(tl.int32)))

    o_t = tl.arange(0, TILE)
    m_t = (o_t < BLOCKS * K) & (o_t % K < n_wanted)
    b_keys = tl.load(keys_ptr + i_r * BLOCKS * K + o_t, m_t, LAST)
    o_k = tl.arange(0, K)
    b_best = tl.full((K,), LAST, tl.int64)
    for i in range(n_wanted):
        best = tl.max(b_keys, 0)
        b_keys = tl.where(b_keys == best, LAST, b_keys)
        b_best = tl.where(o_k == i, best, b_best)
    b_rising = (b_best >> 32).to(tl.int32)
    b_bits = tl.where(b_rising < 0, b_rising ^ 0x7FFFFFFF, b_rising)
    b_logits = b_bits.to(tl.float32, bitcast=True)
    b_ids = 0x7FFFFFFF - (b_best & 0x7FFFFFFF).to(tl.int32)
    m_real = b_best != LAST
    tl.store(ids_ptr + i_r * K + o_k, tl.where(m_real, b_ids, -1))
    tl.store(logits_ptr + i_r * K + o_k, tl.where(m_real, b_logits, float("-inf")))


@triton.jit
def kept_weights(b_x, o_k, temperature, top_k, top_p, min_p):
    """w of candidates in order, 0 for what the filters drop; see `reference.kept_weights`."""
    greedy = temperature <= 0.0
    first = tl.max(b_x, 0)
    divisor = tl.minimum(tl.maximum(temperature, LEAST), MOST)
    b_w = tl.exp((b_x - first) / tl.where(greedy, 1.0, divisor))
    limit = tl.where(greedy, 1, top_k)
    b_w = tl.where((o_k < limit) | (limit <= 0), b_w, 0.0)
    b_before = tl.cumsum(b_w, 0) - b_w
    share = tl.where(top_p >= 1.0, 2.0, top_p)
    m_kept = (b_before < share * tl.sum(b_w, 0)) & (b_w >= min_p)
    return tl.where(m_kept | (o_k == 0), b_w, 0.0)


@triton.jit
def draw_words(seed, position, purpose, b_quarter):
    """The four Philox words of counters (quarter, position, purpose, 0)."""
    b_zero = b_quarter & 0
    return tl.philox(seed, b_quarter, b_zero + position, b_zero + purpose, b_zero)


@triton.jit
def exponential_noise(seed, position, purpose, b_ids):
    """Exponential numbers by token id; see `philox.exponential_noise`."""
    b_0, b_1, b_2, b_3 = draw_words(seed, position, purpose, b_ids >> 2)
    b_word = b_ids & 3
    b_low = tl.where(b_word == 0, b_0, b_1)
    b_high = tl.where(b_word == 2, b_2, b_3)
    b_v = tl.where(b_word < 2, b_low, b_high).to(tl.float32)
    b_v = tl.minimum((b_v + 0.5) * 2.3283064365386963e-10, 1.0 - 5.9604644775390625e-8)
    b_series = 0.14285715 + b_v * 0.125
    b_series = 0.16666667 + b_v * b_series
    b_series = 0.2 + b_v * b_series
    b_series = 0.25 + b_v * b_series
    b_series = 0.33333334 + b_v * b_series
    b_series = 0.5 + b_v * b_series
    b_series = 1.0 + b_v * b_series
    return tl.where(b_v < 0.0625, b_v * b_series, -tl.log(1.0 - b_v))


@triton.jit
def race(b_w, b_noise, b_ids):
    """The token of the least noise / weight among positive weights."""
    b_time = tl.where(b_w > 0.0, b_noise / tl.where(b_w > 0.0, b_w, 1.0), float("inf"))
    i_best = tl.argmin(b_time, 0)
    return tl.sum(tl.where(tl.arange(0, b_w.shape[0]) == i_best, b_ids, 0), 0)


@triton.jit
def choose_kernel(
    ids_ptr,
    logits_ptr,
    candidate_flags_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    seed_ptr,
    position_ptr,
    tokens_ptr,
    flags_ptr,
    purpose,
    K: tl.constexpr,
    WIDE: tl.constexpr,
):
    i_r = tl.program_id(0)
    o_k = tl.arange(0, K)
    b_ids = tl.load(ids_ptr + i_r * K + o_k)
    b_x = tl.load(logits_ptr + i_r * K + o_k)
    temperature = tl.load(temperature_ptr + i_r)
    top_k = tl.load(top_k_ptr + i_r)
    b_w = kept_weights(
        b_x, o_k, temperature, top_k, tl.load(top_p_ptr + i_r), tl.load(min_p_ptr + i_r)
    )
    seed, position = tl.load(seed_ptr + i_r), tl.load(position_ptr + i_r)
    token = race(b_w, exponential_noise(seed, position, purpose, b_ids), b_ids)
    flag = tl.load(candidate_flags_ptr + i_r)
    if not WIDE:
        narrow = ((top_k >= 1) & (top_k <= K)) | (temperature <= 0.0)
        flag |= tl.where(narrow, 0, 2)
    tl.store(flags_ptr + i_r, flag)
    tl.store(tokens_ptr + i_r, tl.where(flag == 0, token, 0))


@triton.jit
def probability_kernel(
    logits_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    out_ptr,
    K: tl.constexpr,
):
    i_r = tl.program_id(0)
    o_k = tl.arange(0, K)
    b_w = kept_weights(
        tl.load(logits_ptr + i_r * K + o_k),
        o_k,
        tl.load(temperature_ptr + i_r),
        tl.load(top_k_ptr + i_r),
        tl.load(top_p_ptr + i_r),
        tl.load(min_p_ptr + i_r),
    )
    tl.store(out_ptr + i_r * K + o_k, b_w / tl.sum(b_w, 0))


def launch_select(
    logits: torch.Tensor, count: int, workspace: CandidateWorkspace, out: Candidates
) -> Candidates:
    rows, vocabulary = logits.shape
    blocks = triton.cdiv(vocabulary, BLOCK)
    select_kernel[(blocks, rows)](
        logits,
        workspace.keys,
        workspace.largest,
        workspace.sums,
        workspace.flags,
        vocabulary,
        logits.stride(0),
        count,
        BLOCK=BLOCK,
        K=CANDIDATES,
        num_warps=8,
    )
    merge_kernel[(rows,)](
        workspace.keys,
        workspace.largest,
        workspace.sums,
        workspace.flags,
        out.ids,
        out.logits,
        out.log_sum,
        out.flags,
        blocks,
        count,
        K=CANDIDATES,
        TILE=triton.next_power_of_2(blocks * CANDIDATES),
        num_warps=8,
    )
    return out


def launch_choose(
    candidates: Candidates,
    parameters: SamplingParameters,
    position: torch.Tensor,
    purpose: int,
    wide: bool,
    tokens: torch.Tensor,
    flags: torch.Tensor,
) -> None:
    choose_kernel[(tokens.numel(),)](
        candidates.ids,
        candidates.logits,
        candidates.flags,
        parameters.temperature,
        parameters.top_k,
        parameters.top_p,
        parameters.min_p,
        parameters.seed,
        position,
        tokens,
        flags,
        purpose,
        K=CANDIDATES,
        WIDE=wide,
        num_warps=1,
    )


def launch_probabilities(
    candidates: Candidates, parameters: SamplingParameters, out: torch.Tensor
) -> torch.Tensor:
    probability_kernel[(out.shape[0],)](
        candidates.logits,
        parameters.temperature,
        parameters.top_k,
        parameters.top_p,
        parameters.min_p,
        out,
        K=CANDIDATES,
        num_warps=1,
    )
    return out


_TYPES = {
    "keys_ptr": "*i64",
    "seed_ptr": "*i64",
    "largest_ptr": "*fp32",
    "sums_ptr": "*fp32",
    "logits_ptr": "*fp32",
    "log_sum_ptr": "*fp32",
    "temperature_ptr": "*fp32",
    "top_p_ptr": "*fp32",
    "min_p_ptr": "*fp32",
    "out_ptr": "*fp32",
}


def _compile(name: str, kernel: Any, warps: int, **constants: int) -> Compilation:
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
        num_warps=warps,
    )


COMPILATIONS = (
    _compile("select", select_kernel, 8, BLOCK=BLOCK, K=CANDIDATES),
    _compile("merge", merge_kernel, 8, K=CANDIDATES, TILE=4096),
    _compile("choose", choose_kernel, 1, K=CANDIDATES, WIDE=False),
    _compile("probabilities", probability_kernel, 1, K=CANDIDATES),
)
