"""What a rotary embedding turns: frequencies, their position axes, scaling. N-23 to N-25."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rotation:
    """R/2 frequencies that turn the first R dimensions of a head, as NeoX halves.

    `inverse_frequencies` fp32 [R/2] in radians per position step; `axes` int32 [R/2] names the
    row of the position table each frequency reads; cos and sin are multiplied by
    `attention_factor` and, with `rounds_table`, rounded to the compute type before use.
    """

    inverse_frequencies: torch.Tensor
    axes: torch.Tensor
    attention_factor: float = 1.0
    rounds_table: bool = True

    @property
    def dimensions(self) -> int:
        """R, the number of rotated dimensions."""
        return 2 * self.inverse_frequencies.shape[0]


@dataclass(frozen=True)
class Yarn:
    """YaRN context extension; names as in `rope_parameters` of a checkpoint."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


def text_rotation(
    theta: float,
    dimensions: int,
    *,
    sections: tuple[int, int, int] | None = None,
    yarn: Yarn | None = None,
    device: torch.device | str = "cpu",
) -> Rotation:
    """Return the rotation of text heads: inv_freq[j] = theta^(-2j/R), j < R/2.

    With `sections` (t, h, w) of interleaved M-RoPE, frequency j reads axis j % 3 while
    j < 3 * sections[axis], else axis 0; without, all read axis 0. Frequencies are made on the
    CPU, so that they are the same numbers on every device. Raises ValueError for odd `dimensions`
    and for sections that do not sum to R/2.
    """
    if dimensions < 2 or dimensions % 2:
        raise ValueError(f"rotary dimensions: got {dimensions}, want an even number")
    if sections is not None and sum(sections) != dimensions // 2:
        raise ValueError(f"M-RoPE sections: got {sections}, want a sum of {dimensions // 2}")
    inverse, factor = _inverse_frequencies(theta, dimensions), 1.0
    if yarn is not None:
        inverse, factor = _yarn_frequencies(theta, inverse, yarn), _yarn_attention_factor(yarn)
    axes = torch.tensor(_interleaved_axes(dimensions // 2, sections), dtype=torch.int32)
    return Rotation(inverse.to(device), axes.to(device), factor)


def vision_rotation(
    head_dim: int, *, theta: float = 10000.0, device: torch.device | str = "cpu"
) -> Rotation:
    """Return the axial rotation of vision heads over all of `head_dim`.

    Angles are [row frequencies | column frequencies], head_dim/4 each, inv_freq[i] =
    theta^(-2i/(head_dim/2)); axis 0 of the positions is the row, axis 1 the column. The table
    stays fp32. Raises ValueError when `head_dim` is no multiple of 4.
    """
    if head_dim % 4:
        raise ValueError(f"vision head dimension: got {head_dim}, want a multiple of 4")
    inverse = _inverse_frequencies(theta, head_dim // 2)
    axes = torch.arange(head_dim // 2, dtype=torch.int32) // (head_dim // 4)
    return Rotation(inverse.repeat(2).to(device), axes.int().to(device), rounds_table=False)


def _inverse_frequencies(theta: float, dimensions: int) -> torch.Tensor:
    return 1.0 / (theta ** (torch.arange(0, dimensions, 2, dtype=torch.float32) / dimensions))


def _interleaved_axes(count: int, sections: tuple[int, int, int] | None) -> list[int]:
    if sections is None:
        return [0] * count
    return [j % 3 if j < 3 * sections[j % 3] else 0 for j in range(count)]


def _yarn_frequencies(theta: float, inverse: torch.Tensor, yarn: Yarn) -> torch.Tensor:
    """Blend interpolated (slow) and original (fast) frequencies by the YaRN ramp."""
    dimensions = 2 * inverse.shape[0]

    def turning_dimension(rotations: float) -> float:
        wavelength = yarn.original_max_position_embeddings / (rotations * 2 * math.pi)
        return dimensions * math.log(wavelength) / (2 * math.log(theta))

    low, high = turning_dimension(yarn.beta_fast), turning_dimension(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dimensions - 1)
    if low == high:
        high += 0.001  # the ramp needs a width
    ramp = (torch.arange(inverse.shape[0], dtype=torch.float32) - low) / (high - low)
    kept = 1.0 - ramp.clamp(0, 1)
    return inverse / yarn.factor * (1.0 - kept) + inverse * kept


def _yarn_attention_factor(yarn: Yarn) -> float:
    if yarn.attention_factor is not None:
        return yarn.attention_factor
    if yarn.mscale and yarn.mscale_all_dim:
        return _mscale(yarn.factor, yarn.mscale) / _mscale(yarn.factor, yarn.mscale_all_dim)
    return _mscale(yarn.factor, 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1.0 else 1.0
