"""One tensor encoded from a stream of row blocks: what a converter calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import encoding, nvfp4, nvfp4_search
from ninfer_formats.errors import UsageError
from ninfer_formats.layouts import block_scale
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_tools.convert.encoders import blocks, nvfp4_divisor
from ninfer_tools.convert.encoders.blocks import Block
from ninfer_tools.convert.encoders.direct import DirectEncoder
from ninfer_tools.convert.encoders.fp8_row import Fp8RowEncoder
from ninfer_tools.convert.encoders.grouped_int import GroupedIntEncoder
from ninfer_tools.convert.encoders.nvfp4 import Nvfp4Encoder
from ninfer_tools.convert.encoders.tile_workers import TileWorkers

ROW_UNIT = block_scale.TILE_ROWS


class Piece(NamedTuple):
    """Bytes (uint8, flat) that belong at `offset` of the encoded tensor."""

    offset: int
    data: NDArray[np.uint8]


class _Encoder(Protocol):
    def encode(self, block: torch.Tensor, first_row: int) -> dict[str, torch.Tensor]: ...


class RowEncoder:
    """Encodes one tensor, row block by row block, in any order; not for several threads.

    The pieces of all blocks and of `finish` cover every byte of the tensor once, and do not
    depend on how the rows are cut into blocks. Blocks hold rows of axis 0: numpy or torch,
    bfloat16 (numpy: words as uint16), float16 or float32, integers for int32. A block begins at
    a multiple of 128 rows and, except the last of the tensor, holds a multiple of 128 rows.

    nvfp4 needs the divisor of the whole tensor first: from `prepare`, or given as `divisor` (to
    resume with the one that `prepare` chose).
    """

    def __init__(
        self,
        format: str,
        shape: tuple[int, ...],
        method: str | None = None,
        device: str | TileWorkers = "cpu",
        divisor: float | None = None,
    ) -> None:
        """`device` is cpu, cuda, cuda:N, or workers that several encoders share in turn.

        Raises UsageError for an unknown format or method, ArtifactError as `plan_tensor`."""
        methods = encoding.METHODS.get(format)
        if methods is None:
            raise UsageError("unknown numeric format", got=format, want=", ".join(nf.FORMATS))
        if method is not None and method not in methods:
            raise UsageError(f"unknown method for {format}", got=method, want=", ".join(methods))
        self.format, self.shape, self.method = format, shape, method or methods[0]
        self.geometry = plan_tensor(format, nf.FORMATS[format].layout, shape)
        self.divisor: np.float32 | None = None
        self._workers = device if isinstance(device, TileWorkers) else TileWorkers(device)
        self._encoder = self._make_encoder()
        if divisor is not None:
            self._set_divisor(nvfp4.check_divisor(divisor))

    @property
    def rows(self) -> int:
        """Rows of axis 0; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def _device(self) -> torch.device:
        direct = self.geometry.planes[0].name == "values"
        return torch.device("cpu") if direct else self._workers.device

    @property
    def needs_preparation(self) -> bool:
        """Whether `prepare` has to run before `encode`."""
        return self.format == nf.NVFP4 and self.divisor is None

    def prepare(self, stream: Callable[[], Iterable[Block]]) -> None:
        """Choose the divisor of an nvfp4 tensor; nothing for other formats.

        `stream()` starts a pass over all rows in order. `absmax` takes one pass; `search` takes
        one, or two where another divisor promises less error. Raises NumericError for NaN and
        infinity, naming the row, and UsageError when the blocks are not the tensor.
        """
        if self.needs_preparation:
            shape = (self.shape[0], self.shape[1])
            with self._workers.quiet_torch():
                divisor = nvfp4_divisor.choose_divisor(
                    lambda: self._read(stream()), shape, self.method, self._workers
                )
            self._set_divisor(divisor)

    def encode(self, block: Block, begin_row: int) -> list[Piece]:
        """Return the pieces of the rows from `begin_row` on.

        Raises NumericError for NaN, infinity and scales that overflow, naming the row of the
        tensor; UsageError for a block of a wrong type or place, or before `prepare`.
        """
        if self._encoder is None:
            raise UsageError("the divisor of an nvfp4 tensor comes first", want="prepare()")
        values = self._accept(block, begin_row)
        with self._workers.quiet_torch():
            planes = self._encoder.encode(values, begin_row)
        return [self._place(name, plane, begin_row) for name, plane in planes.items()]

    def finish(self) -> list[Piece]:
        """Return the bytes that belong to no row: plane gaps, zero, and the nvfp4 divisor."""
        planes, pieces = self.geometry.planes, []
        for plane, following in itertools.pairwise(planes):
            if following.offset > plane.end:
                gap = np.zeros(following.offset - plane.end, np.uint8)
                pieces.append(Piece(plane.end, gap))
        if self.format == nf.NVFP4:
            if self.divisor is None:
                raise UsageError("the divisor of an nvfp4 tensor comes first", want="prepare()")
            data = block_scale.pack_divisors(np.array([self.divisor])).reshape(-1)
            pieces.append(Piece(planes[-1].offset, data))
        return pieces

    def _make_encoder(self) -> _Encoder | None:
        layout = nf.FORMATS[self.format].layout
        if layout == nf.CONTIGUOUS:
            return DirectEncoder(self.format)
        if layout == nf.ROW_SCALE:
            return Fp8RowEncoder(self._workers)
        if layout == nf.ROW_SPLIT:
            return GroupedIntEncoder(self.format, self.shape[1], self._workers)
        return None

    def _set_divisor(self, divisor: np.float32) -> None:
        if self.format != nf.NVFP4:
            raise UsageError("only nvfp4 has a divisor", got=self.format)
        self.divisor = divisor
        steps = nvfp4_search.STEPS if self.method == "search" else ()
        self._encoder = Nvfp4Encoder(self.shape[1], divisor, steps, self._workers)

    def _read(self, stream: Iterable[Block]) -> Iterator[torch.Tensor]:
        begin = 0
        for block in stream:
            yield self._accept(block, begin)
            begin += len(block)
        if begin != self.rows:
            raise UsageError("blocks do not cover the tensor", got=begin, want=self.rows)

    def _accept(self, block: Block, begin: int) -> torch.Tensor:
        values = blocks.to_tensor(block)
        if self.format != nf.INT32:
            values = blocks.view_floats(values)
        if not self.shape and not values.ndim:
            values = values.reshape(1)
        end = begin + len(values)
        whole = end == self.rows or end % ROW_UNIT == 0
        if values.shape[1:] != self.shape[1:] or end > self.rows or begin % ROW_UNIT or not whole:
            raise UsageError(
                "block does not fit the tensor",
                got=f"{list(values.shape)} at row {begin}",
                want=f"a multiple of {ROW_UNIT} rows of {list(self.shape)}",
            )
        return values.to(self._device)

    def _place(self, name: str, data: torch.Tensor, begin: int) -> Piece:
        plane = next(plane for plane in self.geometry.planes if plane.name == name)
        first = begin // ROW_UNIT if name == "scales" else begin
        return Piece(plane.offset + first * plane.row_bytes, _to_host(data))


def _to_host(data: torch.Tensor) -> NDArray[np.uint8]:
    if data.device.type == "cpu":
        return data.numpy()
    # Torch keeps freed pinned memory for the next block; pageable memory costs a fault a page.
    host = torch.empty(data.shape, dtype=data.dtype, pin_memory=True)
    return host.copy_(data).numpy()
