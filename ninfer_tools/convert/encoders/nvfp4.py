"""nvfp4 in torch: rules NF-40 to NF-48 and the layout block_scale_k16_m128x4_v1."""

from __future__ import annotations

import numpy as np
import torch

from ninfer_formats.codecs import nvfp4, nvfp4_search
from ninfer_formats.layouts import block_scale
from ninfer_formats.layouts.geometry import align_up
from ninfer_tools.convert.encoders import blocks, e2m1, lanes
from ninfer_tools.convert.encoders.nvfp4_scales import ScaleChooser
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

BLOCK = nvfp4.BLOCK


class Nvfp4Encoder:
    """Encodes row blocks of a matrix with K columns under one divisor."""

    def __init__(
        self, k: int, divisor: np.float32, steps: tuple[int, ...], workers: TileWorkers
    ) -> None:
        self.width, self.workers = align_up(k, BLOCK), workers
        self.chooser = ScaleChooser(divisor, steps, workers)
        self.divisor = self.chooser.divisor
        self.widths = torch.tensor(nvfp4_search.WIDTHS, device=workers.device)

    def encode(self, block: torch.Tensor, first_row: int) -> dict[str, torch.Tensor]:
        """Return the flat planes, uint8, of float rows [N, K]; the divisor stays out.

        Raises NumericError for NaN and infinity.
        """
        flat = blocks.pad_columns(block, self.width).reshape(-1)
        codes = torch.empty(flat.numel() // 2, dtype=torch.uint8, device=flat.device)
        scales = torch.empty(flat.numel() // BLOCK, dtype=torch.uint8, device=flat.device)

        def encode_tile(tile: slice, scratch: Scratch) -> torch.Tensor:
            words, largest = self.chooser.choose(flat[tile], scratch)
            scales[tile.start // BLOCK : tile.stop // BLOCK] = words
            packed = codes[tile.start // 2 : tile.stop // 2]
            lanes.pack_nibbles(self._round(flat[tile], words, scratch), packed, scratch)
            return largest.amax()

        largest = self.workers.run(flat.numel(), BLOCK, encode_tile, self.chooser.tile)
        if not bool(torch.stack(largest).isfinite().all()):
            blocks.refuse_non_finite(block, "NVFP4 quantization source", first_row)
        return {"codes": codes, "scales": swizzle(scales.view(len(block), -1)).view(-1)}

    def _round(self, values: torch.Tensor, words: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        ratios, snapped, powers = (
            scratch.take(name, values.shape, torch.float32)
            for name in ("ratios", "snapped", "powers")
        )
        ratios.copy_(values).mul_(self.divisor)
        shifted = torch.bitwise_right_shift(
            ratios.view(torch.int32), 28, out=powers.view(torch.int32)
        )
        signs = scratch.take("signs", values.shape, torch.uint8).copy_(shifted).bitwise_and_(8)
        ratios.abs_().view(-1, BLOCK).div_(self.widths.index_select(0, words.int())[:, None])
        # Code 7 follows 6 at half the distance that its value has: 6 stands at 5 here.
        e2m1.snap(ratios, snapped, powers, largest=5)
        codes = scratch.take("codes", values.shape, torch.uint8).copy_(snapped.mul_(2))
        e2m1.count_codes(codes, scratch.take("capped", values.shape, torch.uint8))
        return codes.bitwise_or_(signs)


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """Return tile rows [ceil(N / 128), ceil(G / 4) * 512] of scale words uint8 [N, G]."""
    n, groups = scales.shape
    rows, tiles = block_scale.TILE_ROWS, block_scale.TILE_BLOCKS
    padded = torch.nn.functional.pad(scales, (0, -groups % tiles, 0, -n % rows))
    split = padded.view(len(padded) // rows, 4, 32, -1, tiles)
    return split.permute(0, 3, 2, 1, 4).reshape(len(split), -1)
