"""Rounding to E2M1 in torch (rule NF-4)."""

from __future__ import annotations

import torch

E2M1_MAX = 6.0

_EXPONENT = 0x7F800000
# Adding and taking away this many leading powers of two leaves one fraction bit, rounded to even
# by the addition itself. The product is exact, so a fused multiply-add gives the same sum.
_SHIFTER = 1.5 * 2**22


def snap(
    magnitudes: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor, largest: float = E2M1_MAX
) -> torch.Tensor:
    """Write into `out` the E2M1 value nearest to each of `magnitudes` (float32, >= 0).

    Values above 4 that would round to 6 become `largest`; `scratch` is a buffer of that shape.
    """
    torch.bitwise_and(magnitudes.view(torch.int32), _EXPONENT, out=scratch.view(torch.int32))
    # Below 1 the grid is uniform; above 8 everything saturates anyway.
    scratch.clamp_(1, 4)
    torch.add(magnitudes, scratch, alpha=_SHIFTER, out=out)
    torch.sub(out, scratch, alpha=_SHIFTER, out=out)
    return out.clamp_(max=largest)


def snap_either_way(
    magnitudes: torch.Tensor, out: torch.Tensor, scratch: torch.Tensor
) -> torch.Tensor:
    """As `snap`, for distances: ties go either way, and above 7 the grid goes on to 8.

    A float32 between 2^22 and 2^23 is a multiple of one half, the next octave of 1, the next of
    2: 2^22 times the magnitude itself is an offset on the grid of its octave. Taking it away
    first, so that the difference never reaches the octave above, and adding it again rounds.
    """
    torch.clamp(magnitudes, min=1.5, out=scratch)
    torch.sub(magnitudes, scratch, alpha=2.0**22, out=out)
    return torch.add(out, scratch, alpha=2.0**22, out=out)


def count_codes(doubled: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
    """Turn twice the snapped values (uint8, 6 given as 5) into codes 0..7, in place."""
    # 0 1 2 3 4 | 6 8 10 -> 0 1 2 3 4 | 5 6 7
    torch.clamp(doubled, max=4, out=scratch)
    return doubled.add_(scratch).bitwise_right_shift_(1)
