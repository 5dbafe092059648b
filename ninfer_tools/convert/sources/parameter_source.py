"""Where one logical parameter comes from, and its rows in the forms a converter needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.rounding import F32, U8, round_to_bf16, widen, widen_bf16
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.sources import decoding
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.divisors import invert_multiplier
from ninfer_tools.convert.sources.quantization import (
    DIRECT,
    FP8_BLOCK_SIZE,
    FP8_ROW,
    FP8_TENSOR,
    NVFP4,
    Storage,
)
from ninfer_tools.convert.sources.row_selection import RowSelection
from ninfer_tools.convert.sources.safetensors_file import StoredTensor


class TensorReference(NamedTuple):
    """A stored tensor and the file it lies in."""

    name: str
    path: str


class EncodedRows(NamedTuple):
    """Words of rows as `codecs.importing.import_words` takes them.

    nvfp4: codes uint8 [n, K/2], smaller k in the low nibble; scales uint8 [n, K/16], E4M3FN.
    fp8_e4m3fn_row_bf16: codes uint8 [n, K], E4M3FN; scales uint16 [n], bfloat16 multipliers.
    """

    codes: U8
    scales: NDArray[Any]


@dataclass(frozen=True)
class ParameterSource:
    """One parameter as rows of a stored weight.

    Rows are the first dimension of `shape`, columns all the others together: a vector has one
    column. `transposed` is for the convolution, which files hold channel by channel.
    `shared_with` names the parameter whose stored weight this one is (a tied head).
    """

    parameter: Parameter
    checkpoint: Checkpoint
    storage: Storage
    selection: RowSelection
    transposed: bool = False
    shared_with: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parameter.shape

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def columns(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def kind(self) -> str:
        """One of `quantization.KINDS`."""
        return self.storage.kind

    @property
    def dtype(self) -> str:
        """The safetensors type of the values: BF16, F16 or F32 where they are direct."""
        return self.storage.values.dtype

    @property
    def tensors(self) -> tuple[TensorReference, ...]:
        """Every stored tensor that is read for this parameter, the one with its values first."""
        path_of = self.checkpoint.path_of
        return tuple(TensorReference(t.name, path_of(t)) for t in self.storage.tensors)

    @property
    def import_format(self) -> str | None:
        """The format that can take the stored codes untouched: nvfp4, FP8 rows, or None.

        FP8 with a scale per row or tensor fits when every scale is a bfloat16 number; float32
        scales are read to find out, and count as no fit where only headers are at hand.
        """
        if self.kind == NVFP4:
            return nf.NVFP4
        if self.kind in (FP8_ROW, FP8_TENSOR) and self._scales_are_bf16():
            return nf.FP8
        return None

    @property
    def exact(self) -> bool:
        """Whether an artifact can hold precisely the source's values, by a copy or an import."""
        if self.kind == NVFP4 and self.storage.multiplies:
            return invert_multiplier(self._weight_scalar())[1]
        return self.kind == DIRECT or self.import_format is not None

    @property
    def weight_divisor(self) -> np.float32 | None:
        """The divisor of an NVFP4 weight; None for every other kind."""
        return self._divisor(self.storage.weight_scalar)

    @property
    def input_divisor(self) -> np.float32 | None:
        """The activation divisor stored with an NVFP4 weight, or None."""
        return self._divisor(self.storage.input_scalar)

    def read_values(self, begin: int, end: int) -> F32:
        """Return float32 [end - begin, columns], dequantised as the source defines it."""
        if self.kind == DIRECT:
            values = widen(self._direct(begin, end))
            return values if values.flags.aligned else values.copy()
        codes = self._take(self.storage.values, begin, end)
        if self.kind == NVFP4:
            scales = self._take(self.storage.scale_tensor(), begin, end)
            scalar = self._weight_scalar()
            return decoding.decode_nvfp4(codes, scales, scalar, self.storage.multiplies)
        return decoding.decode_fp8(codes, self._multipliers(begin, end))

    def read_words(self, begin: int, end: int) -> NDArray[Any]:
        """Return the stored words [end - begin, columns] of a direct parameter, bit for bit.

        uint16 for BF16 and F16, uint32 for F32 (see `dtype`); a view of the file where the rows
        lie together. Raises UsageError for a quantised parameter.
        """
        if self.kind != DIRECT:
            raise UsageError("parameter is not stored directly", got=self.parameter.name)
        words = self._direct(begin, end)
        return words.view(f"<u{words.dtype.itemsize}")

    def read_encoded(self, begin: int, end: int) -> EncodedRows:
        """Return codes and scales of rows for `import_format`; UsageError where that is None."""
        if self.import_format is None:
            what = "codes cannot be taken over"
            raise UsageError(what, where=self.parameter.name, got=self.kind)
        codes = self._take(self.storage.values, begin, end)
        if self.kind == NVFP4:
            return EncodedRows(codes, self._take(self.storage.scale_tensor(), begin, end))
        scales = round_to_bf16(self._multipliers(begin, end))[:, 0]
        return EncodedRows(codes, np.ascontiguousarray(scales))

    def pick(self, parameter: Parameter, rows: NDArray[Any]) -> ParameterSource:
        """Return the source of another parameter that consists of some rows of this one."""
        selection = self.selection.pick(rows)
        return replace(self, parameter=parameter, selection=selection, shared_with=None)

    def _direct(self, begin: int, end: int) -> NDArray[Any]:
        words = self.checkpoint.words(self.storage.values)
        if self.transposed:
            return np.ascontiguousarray(words.reshape(-1, self.rows)[:, begin:end].T)
        return self.selection.take(words.reshape(-1, self.columns), begin, end)

    def _take(self, tensor: StoredTensor, begin: int, end: int) -> NDArray[Any]:
        return self.selection.take(self.checkpoint.words(tensor), begin, end)

    def _multipliers(self, begin: int, end: int) -> F32:
        """Return the FP8 scales of rows as float32, [n, 1] or [n, columns]."""
        scales = widen(self.checkpoint.words(self.storage.scale_tensor()))
        if self.kind == FP8_TENSOR:
            return np.full((end - begin, 1), scales.reshape(-1)[0])
        if self.kind == FP8_ROW:
            return self.selection.take(scales.reshape(-1, 1), begin, end)
        blocks = self.selection.numbers(begin, end) // FP8_BLOCK_SIZE
        return decoding.spread_blocks(scales[blocks], self.columns)

    def _scales_are_bf16(self) -> bool:
        tensor = self.storage.scale_tensor()
        if tensor.dtype == "BF16":
            return True
        try:
            scales = widen(self.checkpoint.words(tensor))
        except UsageError:
            return False
        return bool((widen_bf16(round_to_bf16(scales)) == scales).all())

    def _divisor(self, tensor: StoredTensor | None) -> np.float32 | None:
        if self.kind != NVFP4 or tensor is None:
            return None
        value = self.checkpoint.scalar(tensor)
        return invert_multiplier(value)[0] if self.storage.multiplies else value

    def _weight_scalar(self) -> np.float32:
        tensor = self.storage.weight_scalar
        if tensor is None:
            raise UsageError("weight has no global scale", where=self.storage.values.name)
        return self.checkpoint.scalar(tensor)
