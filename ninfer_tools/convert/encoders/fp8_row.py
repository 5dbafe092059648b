"""fp8_e4m3fn_row_bf16 in torch: rules NF-30 to NF-35 and the layout row_scale_v1."""

from __future__ import annotations

import torch

from ninfer_formats.codecs import fp8_row, rounding
from ninfer_tools.convert.encoders import blocks
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

E4M3_MAX = 448.0


class Fp8RowEncoder:
    """Encodes row blocks of a matrix; rows too small for a scale become rows of zeros."""

    def __init__(self, workers: TileWorkers) -> None:
        self.workers = workers

    def encode(self, block: torch.Tensor, first_row: int) -> dict[str, torch.Tensor]:
        """Return the flat planes, uint8, of float rows [N, K]; errors as `fp8_row.encode`."""
        n, k = block.shape
        codes = torch.empty((n, k), dtype=torch.uint8, device=block.device)
        scales = torch.empty((n, 1), dtype=torch.bfloat16, device=block.device)

        def encode_tile(tile: slice, scratch: Scratch) -> torch.Tensor:
            part = slice(tile.start // k, tile.stop // k)
            values = scratch.take("values", block[part].shape, torch.float32)
            rows = block[part].to(torch.bfloat16)
            largest = values.copy_(rows).abs_().amax(1, keepdim=True)
            scales[part], inverse = _choose_scales(largest)
            # Beyond 448 the cast would give NaN.
            values.copy_(rows).mul_(inverse).clamp_(-E4M3_MAX, E4M3_MAX)
            codes[part].view(torch.float8_e4m3fn).copy_(values)
            # A row under scale zero keeps no signs either.
            codes[part].masked_fill_(inverse == 0, 0)
            return torch.isfinite(scales[part]).all()

        if not bool(torch.stack(self.workers.run(n * k, k, encode_tile)).all()):
            fp8_row.encode(rounding.widen(blocks.to_numpy(block)), first_row)
        return {"codes": codes.view(-1), "scale": scales.view(-1).view(torch.uint8)}


def _choose_scales(largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    limit = largest.new_tensor(E4M3_MAX, dtype=torch.float64)
    scales = (largest.double() / limit).float().to(torch.bfloat16)
    inverse = (torch.ones_like(limit) / scales.double()).float()
    zero = torch.isinf(inverse)
    return scales.masked_fill_(zero, 0), inverse.masked_fill_(zero, 0)
