"""Row blocks as they arrive: numpy or torch, bfloat16, float16 or float32."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_formats.codecs import rounding
from ninfer_formats.codecs.faults import reject_non_finite
from ninfer_formats.errors import UsageError
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

Block: TypeAlias = "NDArray[Any] | torch.Tensor"

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def to_tensor(block: Block) -> torch.Tensor:
    """Return `block` as a contiguous tensor that shares its memory where it can."""
    if isinstance(block, torch.Tensor):
        return block.contiguous()
    with warnings.catch_warnings():
        # Blocks of a mapped file are read-only; nothing here writes into its input.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(block))


def view_floats(block: torch.Tensor) -> torch.Tensor:
    """Return `block`, uint16 as the bfloat16 words they are; raises UsageError unless FLOATS."""
    if block.dtype == torch.uint16:
        return block.view(torch.bfloat16)
    if block.dtype not in FLOATS:
        raise UsageError(
            "values have a type that is not taken here",
            got=block.dtype,
            want="float32, float16 or bfloat16",
        )
    return block


def to_numpy(block: torch.Tensor) -> NDArray[Any]:
    """Return a tensor as numpy, bfloat16 as uint16 words."""
    block = block.cpu()
    if block.dtype == torch.bfloat16:
        return block.view(torch.int16).numpy().view(np.uint16)
    return block.numpy()


def pad_columns(block: torch.Tensor, width: int) -> torch.Tensor:
    """Return [N, K] with zeros up to `width` columns; the block itself where K is `width`."""
    missing = width - block.shape[1]
    return torch.nn.functional.pad(block, (0, missing)) if missing else block


def largest_magnitude(block: torch.Tensor, workers: TileWorkers) -> float:
    """Return the largest magnitude of a non-empty float block, NaN where there is one."""
    # Magnitudes order like their words, NaN above infinity.
    wide = block.dtype == torch.float32
    words = block.reshape(-1).view(torch.int32 if wide else torch.int16)
    mask = 0x7FFFFFFF if wide else 0x7FFF

    def find(tile: slice, scratch: Scratch) -> torch.Tensor:
        kept = scratch.take("words", words[tile].shape, words.dtype)
        return torch.bitwise_and(words[tile], mask, out=kept).amax()

    maxima = workers.run(words.numel(), 1, find)
    return float(torch.stack(maxima).amax().view(block.dtype))


def refuse_non_finite(block: torch.Tensor, source: str, first_row: int) -> None:
    """Raise NumericError that names the first NaN or infinity of [N, K], if there is one.

    `first_row` is the number of the block's first row; `source` opens the message.
    """
    values = rounding.widen(to_numpy(block))
    reject_non_finite(np.abs(values), values, source, first_row)
