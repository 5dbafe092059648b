"""Code bits of neighbouring lanes, one byte each, packed into fewer bytes."""

from __future__ import annotations

import torch

from ninfer_tools.convert.encoders.tile_workers import Scratch

# Bits that sit a byte apart move next to each other into the top byte of the product; no two
# terms of a product overlap.
_GATHER_EIGHT = 0x0102040810204080
_GATHER_FOUR = 1 << 24 | 1 << 18 | 1 << 12 | 1 << 6


def pack_nibbles(codes: torch.Tensor, packed: torch.Tensor, scratch: Scratch) -> None:
    """Write bits 0..3 of each two lanes into one byte of `packed`, the even lane lowest."""
    lanes = codes.view(torch.int16)
    pairs = scratch.take("pairs", lanes.shape, torch.int16)
    shifted = scratch.take("shifted", lanes.shape, torch.int16)
    torch.bitwise_and(lanes, 0x0F0F, out=pairs)
    torch.bitwise_right_shift(pairs, 4, out=shifted)
    packed.copy_(pairs.bitwise_or_(shifted))


def pack_bit_4(codes: torch.Tensor, packed: torch.Tensor, scratch: Scratch) -> None:
    """Write bit 4 of each eight lanes into one byte of `packed`, the first lane lowest."""
    _gather(codes.view(torch.int64), 0x0101010101010101, _GATHER_EIGHT, packed, scratch)


def pack_bits_4_5(codes: torch.Tensor, packed: torch.Tensor, scratch: Scratch) -> None:
    """Write bits 4 and 5 of each four lanes into one byte of `packed`, the first lane lowest."""
    _gather(codes.view(torch.int32), 0x03030303, _GATHER_FOUR, packed, scratch)


def _gather(
    words: torch.Tensor, mask: int, factor: int, packed: torch.Tensor, scratch: Scratch
) -> None:
    high = scratch.take("high", words.shape, words.dtype)
    torch.bitwise_right_shift(words, 4, out=high)
    top = 8 * words.element_size() - 8
    packed.copy_(high.bitwise_and_(mask).mul_(factor).bitwise_right_shift_(top))
