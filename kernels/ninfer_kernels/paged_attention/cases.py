"""Rounds and chunks attention is tested and measured with, odd ones first; N-27 and N-28."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import ROUNDOFF, error_share, poisoned, rounded_bound
from ninfer_kernels.kv_codec.cases import make_tables, poisoned_pages
from ninfer_kernels.kv_codec.pages import KVPages
from ninfer_kernels.kv_codec.reference import append_kv, read_kv
from ninfer_kernels.launch import TRITON
from ninfer_kernels.paged_attention.op import paged_attention
from ninfer_kernels.paged_attention.plan import machine_of, plan_attention

_E = 2.0**-24
# Columns whose float64 scores are held at a time.
_EXACT_COLUMNS = 64


@dataclass(frozen=True)
class AttentionCase:
    """Lanes with `base` tokens and `columns` real columns of `width`."""

    kind: str
    base: tuple[int, ...]
    columns: tuple[int, ...]
    width: int
    q_heads: int
    kv_heads: int
    size: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        heads = f"{self.q_heads}/{self.kv_heads}x{self.size}"
        longest = max(b + c for b, c in zip(self.base, self.columns, strict=True))
        return f"{self.kind} {len(self.base)}x{self.width} {heads} of {longest} {self.dtype}"


def _small_cases() -> tuple[AttentionCase, ...]:
    fp32, kinds = torch.float32, ("bf16", "fp8", "int8")
    odd = [AttentionCase(k, (0, 130, 70), (3, 2, 0), 3, 6, 2, 40, small=True) for k in kinds]
    exact = [AttentionCase("fp32", (300, 0), (3, 1), 3, 3, 1, 16, fp32, small=True)]
    wide = [AttentionCase("int8", (1000,), (1,), 1, 12, 2, 32, fp32, small=True)]
    chunk = [AttentionCase(k, (70,), (37,), 40, 3, 1, 32, small=True) for k in ("bf16", "fp8")]
    return tuple(odd + exact + wide + chunk)


def _model_cases() -> tuple[AttentionCase, ...]:
    kinds = ("bf16", "fp8", "int8")
    heads = ((24, 4), (16, 2), (32, 2), (8, 2))
    rounds = [
        AttentionCase(k, (8191, 0, 257, 1000), (4, 1, 0, 3), 4, q, h, 256)
        for k in kinds
        for q, h in heads
    ]
    widths = [AttentionCase("int8", (5000,), (w,), w, 24, 4, 256) for w in (1, 2, 8, 16)]
    chunks = [AttentionCase(k, (b,), (300,), 300, 24, 4, 256) for k in kinds for b in (0, 3000)]
    fp32 = [AttentionCase("fp32", (700,), (5,), 5, 4, 2, 256, torch.float32)]
    return tuple(rounds + widths + chunks + fp32)


CASES: tuple[AttentionCase, ...] = _small_cases() + _model_cases()


@dataclass(frozen=True)
class AttentionInputs:
    q: torch.Tensor
    cache: KVPages
    block_table: torch.Tensor
    base: torch.Tensor
    columns: torch.Tensor
    scale: float


def make_inputs(case: AttentionCase, device: torch.device | str, seed: int) -> AttentionInputs:
    """Return queries with NaN in padded columns and a cache with poison in unwritten rows."""
    generator = torch.Generator(device).manual_seed(seed)
    table, base, columns, pages = make_tables(case.base, case.columns, device, seed)
    cache = poisoned_pages(case.kind, pages, case.kv_heads, case.size, device)
    total = base + columns
    longest = int(total.max())
    shape = (len(case.base), longest, case.kv_heads, 2 * case.size)
    both = torch.randn(shape, device=device, generator=generator).to(case.dtype)
    keys, values = both.chunk(2, dim=-1)
    append_kv(keys, values, cache, table, torch.zeros_like(base), total)
    shape = (len(case.base), case.width, case.q_heads, 2 * case.size)
    q = torch.randn(shape, device=device, generator=generator).to(case.dtype)[..., : case.size]
    for lane, count in enumerate(case.columns):
        q[lane, count:] = torch.nan
    return AttentionInputs(q, cache, table, base, columns, case.size**-0.5)


def worst_error(case: AttentionCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned.

    Infinity if a padded column is not exactly zero.
    """
    inputs = make_inputs(case, device, seed)
    q, cache = inputs.q, inputs.cache
    out = poisoned(tuple(q.shape), case.dtype, device)
    processors = machine_of(out.device).processors
    sizes = (case.q_heads, case.kv_heads, case.size, inputs.block_table.shape[1], processors)
    plan = plan_attention(len(case.base), case.width, *sizes)
    workspace = poisoned((plan.workspace,), torch.float32, device)
    tables = (inputs.block_table, inputs.base, inputs.columns)
    options = {"out": out, "workspace": workspace, "backend": backend}
    paged_attention(q, cache, *tables, inputs.scale, **options)
    weight_error = ROUNDOFF[case.dtype] if backend == TRITON else 0.0
    share = 0.0
    for lane, (base, count) in enumerate(zip(case.base, case.columns, strict=True)):
        if bool((out[lane, count:] != 0).any()):
            return float("inf")
        if count == 0:
            continue
        keys, values = read_kv(cache, inputs.block_table[lane], 0, base + count)
        for begin in range(0, count, _EXACT_COLUMNS):
            end = min(begin + _EXACT_COLUMNS, count)
            part = q[lane, begin:end]
            want, before = _exact(part, keys, values, base + begin, inputs.scale, weight_error)
            bound = rounded_bound(want, case.dtype, before)
            share = max(share, error_share(out[lane, begin:end], want, bound))
    return share


def _exact(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    first: int,
    scale: float,
    weight_error: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float64 attention [W, Hq, D] of columns at `first`.., and rule N-27's bound."""
    width, heads, size = q.shape
    group = heads // keys.shape[0]
    keys = keys.double().repeat_interleave(group, 0)
    values = values.double().repeat_interleave(group, 0)
    queries = q.double().transpose(0, 1) * scale
    position = torch.arange(first, first + width, device=q.device)[:, None]
    unseen = torch.arange(keys.shape[1], device=q.device)[None] > position
    scores = (queries @ keys.transpose(1, 2)).masked_fill(unseen, -torch.inf)
    weights = torch.softmax(scores, dim=-1)
    sizes = (queries.abs() @ keys.abs().transpose(1, 2)).masked_fill(unseen, 0.0)
    largest = sizes.amax(-1, keepdim=True)
    spread = 2 * ((size + 9) * _E * largest + 8 * _E)
    before = (weights @ values.abs()) * (2 * spread + weight_error + (2 * (position + 1) + 32) * _E)
    return (weights @ values).transpose(0, 1), before.transpose(0, 1)
