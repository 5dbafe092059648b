"""bf16, fp32 and int32 in torch: rules NF-10 to NF-12. Always on the CPU: nothing to compute."""

from __future__ import annotations

import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import direct
from ninfer_tools.convert.encoders import blocks


class DirectEncoder:
    """Casts row blocks to one direct format; NaN and infinity pass, as NF-10 and NF-11 say."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.dtype = {nf.BF16: torch.bfloat16, nf.FP32: torch.float32}.get(format)

    def encode(self, block: torch.Tensor, first_row: int) -> dict[str, torch.Tensor]:
        """Return the flat plane, uint8, of rows [N, ...]; errors as `direct.encode`."""
        return {"values": self._cast(block).view(-1).view(torch.uint8)}

    def _cast(self, block: torch.Tensor) -> torch.Tensor:
        if block.dtype == self.dtype:
            return block
        # Casting a NaN would lose its payload, and numpy looks at every integer.
        if self.dtype is None or bool(torch.isnan(block).any()):
            words = direct.encode(blocks.to_numpy(block), self.format)
            return torch.from_numpy(words.view(f"<i{words.itemsize}"))
        return block.to(self.dtype)
