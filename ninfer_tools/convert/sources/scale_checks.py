"""Scales that no weight can have (rules S-57, S-58 and S-78)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ninfer_formats.codecs.nvfp4 import MAX_SCALE
from ninfer_formats.codecs.rounding import widen
from ninfer_formats.errors import NinferError
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.divisors import invert_multiplier
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import (
    DIRECT,
    FP8_BLOCK,
    FP8_BLOCK_SIZE,
    FP8_TENSOR,
    NVFP4,
    Storage,
)
from ninfer_tools.convert.sources.safetensors_file import StoredTensor

_SCANNED_BYTES = 1 << 24
_MAX_E4M3, _MAX_E2M1 = np.float32(448), np.float32(6)
_FAINT = 1e-30
_IN_RANGE = "one under which the largest code is finite"


def find_bad_scales(
    sources: Iterable[ParameterSource], faint: list[str] | None = None
) -> list[NinferError]:
    """Return one problem per scale tensor that is not finite and above zero.

    The NVFP4 global scales under which no weight reaches 1e-30 are added to `faint`.

    Reads every scale and no weight, except the codes under FP8 scales of zero.
    """
    stored = {
        (id(s.checkpoint), s.storage.values.name): (s.checkpoint, s.storage)
        for s in sources
        if s.kind != DIRECT
    }
    faint = [] if faint is None else faint
    return [problem for item in stored.values() for problem in _check(*item, faint)]


def _check(checkpoint: Checkpoint, storage: Storage, faint: list[str]) -> Iterator[NinferError]:
    for tensor in (storage.weight_scalar, storage.input_scalar):
        if tensor is not None:
            values = tensor is storage.weight_scalar
            yield from _check_scalar(checkpoint, tensor, storage.multiplies, values, faint)
    if storage.kind == NVFP4:
        yield from _check_block_words(checkpoint, storage.scale_tensor())
    else:
        yield from _check_multipliers(checkpoint, storage)


def _check_scalar(
    checkpoint: Checkpoint,
    tensor: StoredTensor,
    multiplies: bool,
    scales_values: bool,
    faint: list[str],
) -> Iterator[NinferError]:
    value = checkpoint.scalar(tensor)
    divisor = value
    usable = np.isfinite(value) and value > 0
    if usable and multiplies:
        divisor, _ = invert_multiplier(value)
        usable = np.isfinite(divisor) and divisor > 0
    if not usable:
        yield _bad(checkpoint, tensor, str(value))
    elif scales_values and _overflows(_MAX_E4M3 * _MAX_E2M1, 1 / np.float64(divisor)):
        yield _bad(checkpoint, tensor, str(value), _IN_RANGE)
    elif scales_values and np.float64(_MAX_E4M3 * _MAX_E2M1) / divisor < _FAINT:
        faint.append(tensor.name)


def _overflows(code: np.float32, scale: np.float64) -> bool:
    return bool(np.float64(code) * scale > np.finfo(np.float32).max)


def _bad(
    checkpoint: Checkpoint, tensor: StoredTensor, got: str, want: str = "finite and above zero"
) -> NinferError:
    return NinferError(
        "scale cannot be used", path=checkpoint.path_of(tensor), where=tensor.name, got=got,
        want=want, remedy="the checkpoint is broken: download or make it again",
    )  # fmt: skip


def _check_block_words(checkpoint: Checkpoint, tensor: StoredTensor) -> Iterator[NinferError]:
    # A zero word is legal: its block decodes to zeros whatever the codes say.
    words = checkpoint.words(tensor).reshape(-1)
    for begin in range(0, len(words), _SCANNED_BYTES):
        bad = words[begin : begin + _SCANNED_BYTES] > MAX_SCALE
        if bad.any():
            row, column = divmod(begin + int(np.argmax(bad)), tensor.shape[1])
            word = int(words[row * tensor.shape[1] + column])
            yield _bad(checkpoint, tensor, f"word 0x{word:02X} in row {row}, block {column}")
            return


def _check_multipliers(checkpoint: Checkpoint, storage: Storage) -> Iterator[NinferError]:
    tensor = storage.scale_tensor()
    scales = widen(checkpoint.words(tensor)).reshape(-1)
    bad = np.flatnonzero(~(np.isfinite(scales) & (scales >= 0)))
    if not bad.size:
        zero = np.flatnonzero(scales == 0)
        bad = np.array([i for i in zero if _covers_codes(checkpoint, storage, int(i))], np.int64)
    if bad.size:
        first = int(bad[0])
        yield _bad(checkpoint, tensor, f"{scales[first]} at {first}, {bad.size} in all")
    elif scales.size and _overflows(_MAX_E4M3, scales.max().astype(np.float64)):
        first = int(np.argmax(scales))
        yield _bad(checkpoint, tensor, f"{scales[first]} at {first}", _IN_RANGE)


def _covers_codes(checkpoint: Checkpoint, storage: Storage, scale: int) -> bool:
    """Return whether a scale of zero stands over codes that are not zero."""
    codes = checkpoint.words(storage.values)
    if storage.kind == FP8_BLOCK:
        size = FP8_BLOCK_SIZE
        row, column = divmod(scale, -(-codes.shape[1] // size))
        codes = codes[row * size : (row + 1) * size, column * size : (column + 1) * size]
    elif storage.kind != FP8_TENSOR:
        codes = codes[scale]
    return bool((codes & 0x7F).any())
