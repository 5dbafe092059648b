"""KV codecs in plain torch: the definition. Rules KV-10 to KV-16 of specs/kv-codecs.md."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec.pages import PAGE_TOKENS, KVPages

# Codes of the largest magnitude: 127, and 448 = E4M3FN word 0x7E.
LARGEST = {"int8": 127.0, "fp8": 448.0}
SMALLEST_SCALE = 2.0**-24
LARGEST_SCALE = 65504.0


def encode_rows(kind: str, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (codes [..., D], fp16 scales [...] or None) of values [..., D], bf16 or fp32."""
    if kind == "fp32":
        return values.float(), None
    if kind == "bf16":
        return values.to(torch.bfloat16), None
    rows = values.float()
    largest = rows.abs().amax(-1)
    finite = torch.isfinite(largest)
    # By a tensor: on a GPU, division by a number multiplies by its rounded reciprocal.
    most = torch.full_like(largest, LARGEST[kind])
    scales = (largest / most).clamp(SMALLEST_SCALE, LARGEST_SCALE).half()
    scaled = rows * (1.0 / scales.float())[..., None]
    scaled = torch.where(finite[..., None], scaled, 0.0)
    scales = torch.where(finite, scales, torch.nan)
    bounded = scaled.clamp(-LARGEST[kind], LARGEST[kind])
    codes = bounded.round().to(torch.int8) if kind == "int8" else _round_to_e4m3(bounded)
    return codes, scales


def decode_rows(kind: str, codes: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """Return the fp32 values [..., D] of codes and scales as `encode_rows` makes them."""
    values = _e4m3_values(codes) if kind == "fp8" else codes.float()
    return values if scales is None else values * scales.float()[..., None]


def append_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
) -> None:
    """Write column w < columns[l] of lane l at token base[l] + w of that lane's pages."""
    lanes, width = keys.shape[:2]
    column = torch.arange(width, device=keys.device).expand(lanes, width)
    token = base.long()[:, None] + column
    entry = token // PAGE_TOKENS
    inside = (column < columns[:, None]) & (entry < block_table.shape[1])
    page = block_table.long().gather(1, entry.clamp(max=block_table.shape[1] - 1))
    lane, column = torch.nonzero(inside & (page >= 0), as_tuple=True)
    page, place = page[lane, column], token[lane, column] % PAGE_TOKENS
    written = (
        (keys, cache.keys, cache.key_scales),
        (values, cache.values, cache.value_scales),
    )
    for source, plane, scale_plane in written:
        codes, scales = encode_rows(cache.kind, source[lane, column])
        plane[page, :, place] = codes
        if scale_plane is not None and scales is not None:
            scale_plane[page, :, place] = scales


def copy_pages(cache: KVPages, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """Copy page sources[i] over page targets[i] for every i where neither is negative."""
    real = (sources >= 0) & (targets >= 0)
    sources, targets = sources[real].long(), targets[real].long()
    for plane in cache.planes:
        plane[targets] = plane[sources]


def read_kv(
    cache: KVPages, pages: torch.Tensor, begin: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return fp32 keys and values [Hkv, end - begin, D] of tokens begin..end of one lane.

    `pages` int32 [max_pages] is the lane's row of the block table; it must own the tokens.
    """
    first, last = begin // PAGE_TOKENS, -(-end // PAGE_TOKENS)
    index = pages[first:last].long()
    offset = first * PAGE_TOKENS

    def gather(plane: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        rows = plane[index].transpose(0, 1).flatten(1, 2)[:, begin - offset : end - offset]
        if scales is None:
            return decode_rows(cache.kind, rows, None)
        taken = scales[index].transpose(0, 1).flatten(1, 2)[:, begin - offset : end - offset]
        return decode_rows(cache.kind, rows, taken)

    return gather(cache.keys, cache.key_scales), gather(cache.values, cache.value_scales)


def _round_to_e4m3(values: torch.Tensor) -> torch.Tensor:
    """Return E4M3FN words uint8 of fp32 values within +-448: nearest, ties to the even word.

    Normal values keep the top three fraction bits of the fp32 word, rounded by an integer add
    whose carry may run into the exponent; below 2^-6 the grid is uniform with step 2^-9.
    """
    magnitude = values.abs()
    bits = magnitude.view(torch.int32)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    subnormal = (magnitude * 512.0).round().int()
    words = torch.where(magnitude < 2.0**-6, subnormal, normal)
    return (words | ((values.view(torch.int32) >> 24) & 0x80)).to(torch.uint8)


def _e4m3_values(words: torch.Tensor) -> torch.Tensor:
    """Return the fp32 values of E4M3FN words that are not NaN.

    Moved to the fields of fp16 a word reads as 2^-8 times its value, subnormals included.
    """
    wide = words.to(torch.int16)
    fields = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    return fields.view(torch.float16).float() * 256.0
