"""Rounds the cache is appended to in tests and measurements, odd ones first; KV-5, KV-10..14."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import poisoned
from ninfer_kernels.kv_codec import reference
from ninfer_kernels.kv_codec.op import append_kv, copy_pages
from ninfer_kernels.kv_codec.pages import KV_KINDS, PAGE_TOKENS, KVPages, allocate_pages


@dataclass(frozen=True)
class AppendCase:
    """Lanes with `base` tokens get `columns` of `width` columns."""

    kind: str
    base: tuple[int, ...]
    columns: tuple[int, ...]
    width: int
    kv_heads: int
    size: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        shape = f"{len(self.base)}x{self.width}x{self.kv_heads}x{self.size}"
        return f"{self.kind} {shape} {self.dtype}"


def _small_cases() -> tuple[AppendCase, ...]:
    odd = [AppendCase(k, (62, 0, 130), (3, 2, 0), 3, 3, 40, small=True) for k in KV_KINDS]
    wide = [AppendCase(k, (60,), (7,), 8, 1, 64, torch.float32, small=True) for k in KV_KINDS]
    return tuple(odd + wide)


def _model_cases() -> tuple[AppendCase, ...]:
    kinds = ("bf16", "fp8", "int8")
    rounds = [
        AppendCase(k, (8191, 3, 0, 700), (4, 4, 0, 2), 4, h, 256) for k in kinds for h in (2, 4)
    ]
    prefill = [AppendCase(k, (4000,), (2048,), 2048, 4, 256) for k in kinds]
    return tuple(rounds + prefill)


CASES: tuple[AppendCase, ...] = _small_cases() + _model_cases()


@dataclass(frozen=True)
class AppendInputs:
    keys: torch.Tensor
    values: torch.Tensor
    block_table: torch.Tensor
    base: torch.Tensor
    columns: torch.Tensor
    pages: int


def make_tables(
    base: tuple[int, ...], columns: tuple[int, ...], device: torch.device | str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return (block_table, base, columns, pages): shuffled pages, exactly as many as needed."""
    counts = [-(-(b + c) // PAGE_TOKENS) for b, c in zip(base, columns, strict=True)]
    pages = sum(counts) + 2
    free = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).int()
    table = torch.full((len(base), max(*counts, 1) + 1), -1, dtype=torch.int32)
    first = 0
    for lane, count in enumerate(counts):
        table[lane, :count] = free[first : first + count]
        first += count
    counted = torch.tensor([base, columns], dtype=torch.int32, device=device)
    return table.to(device), counted[0], counted[1], pages


def poisoned_pages(
    kind: str, pages: int, kv_heads: int, size: int, device: torch.device | str
) -> KVPages:
    """Return pages whose every row reads as NaN or as an odd number until it is written."""
    cache = allocate_pages(kind, pages, kv_heads, size, device)
    for plane in cache.planes:
        plane.copy_(poisoned(tuple(plane.shape), plane.dtype, device))
    return cache


def make_inputs(case: AppendCase, device: torch.device | str, seed: int) -> AppendInputs:
    """Return rows of very different sizes, with zeros, ties, NaN and infinities among them."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (len(case.base), case.width, case.kv_heads, 2 * case.size)
    both = torch.randn(shape, device=device, generator=generator)
    sizes = torch.randint(-30, 12, shape[:3], device=device, generator=generator)
    both = torch.ldexp(both, sizes[..., None])
    both[0, 0, 0, : case.size] = 0
    if case.width > 1:
        both[0, 1, -1, :4] = torch.tensor([127.0, 0.5, 1.5, -2.5], device=device)
        both[0, 1, -1, 4 : case.size] = 0
        both[-1, 1, 0, 0], both[-1, 1, 0, -1] = torch.nan, torch.inf
    keys, values = both.to(case.dtype).chunk(2, dim=-1)
    table, base, columns, pages = make_tables(case.base, case.columns, device, seed)
    return AppendInputs(keys, values, table, base, columns, pages)


def worst_error(case: AppendCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return 0 if every bit of the cache is that of the definition, infinity otherwise.

    Codes and scales have no tolerance. NaN counts as NaN whatever its payload. Rows that the
    round does not own must keep their poison. The first page is copied over the last afterwards.
    """
    inputs = make_inputs(case, device, seed)
    shape = (case.kind, inputs.pages, case.kv_heads, case.size, device)
    got, want = poisoned_pages(*shape), poisoned_pages(*shape)
    round_tables = (inputs.block_table, inputs.base, inputs.columns)
    append_kv(inputs.keys, inputs.values, got, *round_tables, backend=backend)
    _write_one_by_one(inputs, want)
    pairs = torch.tensor([[0, -1], [inputs.pages - 1, 0]], dtype=torch.int32, device=device)
    copy_pages(got, *pairs, backend=backend)
    for plane in want.planes:
        plane[inputs.pages - 1] = plane[0]
    same = [_same(a, b) for a, b in zip(got.planes, want.planes, strict=True)]
    return 0.0 if all(same) else float("inf")


def _write_one_by_one(inputs: AppendInputs, cache: KVPages) -> None:
    columns, base = inputs.columns.tolist(), inputs.base.tolist()
    table = inputs.block_table.tolist()
    for lane, count in enumerate(columns):
        for column in range(count):
            token = base[lane] + column
            page, place = table[lane][token // PAGE_TOKENS], token % PAGE_TOKENS
            planes = (cache.keys, cache.key_scales), (cache.values, cache.value_scales)
            for row, (codes, scales) in zip((inputs.keys, inputs.values), planes, strict=True):
                code, scale = reference.encode_rows(cache.kind, row[lane, column])
                codes[page, :, place] = code
                if scales is not None and scale is not None:
                    scales[page, :, place] = scale


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype.is_floating_point:
        return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(
            torch.isnan(a), torch.isnan(b)
        )
    return torch.equal(a, b)
