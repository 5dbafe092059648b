"""q4, q5, q6 and q8 in torch: rules NF-20 to NF-27 and the layout row_split_k128_v1."""

from __future__ import annotations

import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import grouped_int, rounding
from ninfer_formats.layouts.geometry import align_up
from ninfer_formats.layouts.row_split import K_ALIGNMENT
from ninfer_tools.convert.encoders import blocks, lanes
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

# Values per byte of each plane that holds codes.
_DENSITIES = {
    nf.Q4: {"base": 2},
    nf.Q5: {"base": 2, "high": 8},
    nf.Q6: {"base": 2, "high": 4},
    nf.Q8: {"base": 1},
}


class GroupedIntEncoder:
    """Encodes row blocks of a matrix with K columns in one integer format."""

    def __init__(self, format: str, k: int, workers: TileWorkers) -> None:
        self.format, self.width, self.workers = format, align_up(k, K_ALIGNMENT), workers
        self.group, self.codes = nf.FORMATS[format].group, grouped_int.CODES[format]

    def encode(self, block: torch.Tensor, first_row: int) -> dict[str, torch.Tensor]:
        """Return the flat planes, uint8, of float rows [N, K]; errors as `grouped_int.encode`."""
        # Zeros up to the layout's width change no scale, and give code 0 and scale 0.
        flat = blocks.pad_columns(block, self.width).reshape(-1)
        planes = {
            name: torch.empty(flat.numel() // density, dtype=torch.uint8, device=flat.device)
            for name, density in _DENSITIES[self.format].items()
        }
        scales = torch.empty(flat.numel() // self.group, dtype=torch.int16, device=flat.device)

        def encode_tile(tile: slice, scratch: Scratch) -> torch.Tensor:
            words, inverse = self._choose_scales(self._group_maxima(flat[tile], scratch))
            scales[tile.start // self.group : tile.stop // self.group] = words
            self._pack(self._round(flat[tile], inverse, scratch), planes, tile, scratch)
            return (words & 0x7FFF).amax()

        largest = torch.stack(self.workers.run(flat.numel(), self.group, encode_tile))
        # The bits of infinity and NaN are the largest.
        if int(largest.amax()) >= 0x7C00:
            grouped_int.encode(rounding.widen(blocks.to_numpy(block)), self.format, first_row)
        return {**planes, "scale": scales.view(torch.uint8)}

    def _group_maxima(self, values: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        wide = scratch.take("values", values.shape, torch.float32).copy_(values)
        return wide.abs_().view(-1, self.group).amax(1)

    def _choose_scales(self, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        high = largest.new_tensor(self.codes.high, dtype=torch.float64)
        scales = (largest.double() / high).float().half()
        rescued = (scales == 0) & (largest > 0)
        words = scales.view(torch.int16).masked_fill_(rescued, grouped_int.RESCUED_SCALE)
        inverse = torch.ones_like(high) / words.view(torch.float16).double()
        return words, inverse.float().masked_fill_(words == 0, 0)

    def _round(self, values: torch.Tensor, inverse: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        normal = scratch.take("values", values.shape, torch.float32).copy_(values)
        normal.view(-1, self.group).mul_(inverse[:, None])
        normal.round_().clamp_(self.codes.low, self.codes.high)
        return scratch.take("codes", values.shape, torch.int8).copy_(normal)

    def _pack(
        self,
        codes: torch.Tensor,
        planes: dict[str, torch.Tensor],
        tile: slice,
        scratch: Scratch,
    ) -> None:
        parts = {
            name: plane[tile.start // density : tile.stop // density]
            for (name, plane), density in zip(
                planes.items(), _DENSITIES[self.format].values(), strict=True
            )
        }
        if self.format == nf.Q8:
            parts["base"].view(torch.int8).copy_(codes)
            return
        lanes.pack_nibbles(codes, parts["base"], scratch)
        if self.format == nf.Q5:
            lanes.pack_bit_4(codes, parts["high"], scratch)
        elif self.format == nf.Q6:
            lanes.pack_bits_4_5(codes, parts["high"], scratch)
