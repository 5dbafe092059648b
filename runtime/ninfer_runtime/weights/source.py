"""Parameters of an artifact as tensors on a device: asked for first, read in file order after."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.parameters import ParameterPart
from ninfer_formats.reader import Artifact
from ninfer_kernels.linear import Matrix
from ninfer_kernels.linear.matrix import FORMATS
from ninfer_runtime.errors import StartupError
from ninfer_runtime.weights.load_record import LoadRecord
from ninfer_runtime.weights.placement import empty_matrix
from ninfer_runtime.weights.requantization import Requantization
from ninfer_runtime.weights.staging import Clock, Progress, make_stage
from ninfer_runtime.weights.transfers import (
    RowTransfer,
    StoredRows,
    Transfer,
    ValueTransfer,
    cut_blocks,
    in_file_order,
    interleave,
)

_DIRECT = {torch.bfloat16: nf.BF16, torch.float32: nf.FP32}
_UNCHANGED = Requantization({})


class WeightSource:
    """Reads parameters of one artifact.

    `vector` and `matrix` return tensors on `device` that are empty until `load`, which reads
    everything asked for in the order of the file. `dtype` is the compute type, in which vectors
    come; direct matrices come in `matrix_dtype`. With `decoded` every matrix does, which costs
    memory and saves decoding in every product.
    """

    def __init__(
        self,
        artifact: Artifact,
        device: torch.device,
        dtype: torch.dtype,
        matrix_dtype: torch.dtype,
        decoded: bool,
        requantization: Requantization = _UNCHANGED,
    ) -> None:
        self.artifact, self.device, self.dtype = artifact, device, dtype
        self._direct, self._decoded = _DIRECT[matrix_dtype], decoded
        self._requantization = requantization
        self._transfers: list[Transfer] = []
        self.allocated: list[int] = []  # bytes of every tensor handed out
        self._began = time.perf_counter()

    def has(self, name: str) -> bool:
        return name in self.artifact.bindings

    def vector(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a direct parameter in its own shape and the compute type, or `dtype`."""
        shape = self.artifact.parameter(name).shape
        return self.vectors(name, dtype=dtype).view(shape)

    def vectors(self, *names: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return the elements of direct parameters, one after the other, flat."""
        parts = [part for name in names for part in self.artifact.parameter(name).parts]
        ends = [0]
        for part in parts:
            self._check(names[0], part, (nf.BF16, nf.FP32, nf.INT32))
            ends.append(ends[-1] + part.end - part.begin)
        values = torch.empty(ends[-1], dtype=dtype or self.dtype, device=self.device)
        self.allocated.append(values.nbytes)
        for part, (begin, end) in zip(parts, pairwise(ends), strict=True):
            self._transfers.append(ValueTransfer(part, values[begin:end]))
        return values

    def matrix(self, *names: str) -> Matrix:
        """Return the rows of the named parameters, which have one format, as one matrix.
        StartupError naming the first of another format."""
        runs = self._runs(names)
        if len(runs) > 1:
            raise StartupError(
                "matrices that are read as one have different formats",
                path=self.artifact.path,
                where=runs[1][1][0][0],
                got=runs[1][0],
                want=f"{runs[0][0]}, as {runs[0][1][0][0]}",
                remedy="convert the checkpoint with one format for all of them",
            )
        return self._join(*runs[0])

    def matrices(self, *names: str) -> tuple[Matrix, ...]:
        """Return the rows of the named parameters in order: one matrix for each run of parameters
        of the same format."""
        return tuple(self._join(*run) for run in self._runs(names))

    def load(self, progress: Progress) -> LoadRecord:
        """Read everything that was asked for; `progress` takes counts of stored bytes."""
        opened = time.perf_counter()
        clock, rows, total = Clock(), StoredRows(self.artifact), 0

        def advance(count: int) -> None:
            nonlocal total
            total += count
            progress(count)

        stage = make_stage(self.device, clock, advance)
        try:
            for transfer in interleave(in_file_order(self._transfers)):
                if isinstance(transfer, RowTransfer):
                    for block in cut_blocks(rows, transfer, stage.block_bytes):
                        stage.put(block)
                else:
                    values = torch.from_numpy(rows.values(transfer.part))
                    transfer.target.copy_(values)
                    advance(values.numel() * _stored_bytes(transfer.part))
        finally:
            stage.finish()
        self._transfers.clear()
        # What the loading thread did besides waiting and placing is looking at the file.
        rest = time.perf_counter() - opened - clock.read - clock.upload - clock.prepare
        return LoadRecord(
            total, opened - self._began, clock.read + rest, clock.upload, clock.prepare
        )

    def _runs(self, names: Sequence[str]) -> list[tuple[str, list[tuple[str, ParameterPart]]]]:
        """Return runs of parts that get one format: the format, and (parameter, part) of each."""
        parts = [(name, part) for name in names for part in self.artifact.parameter(name).parts]
        for name, part in parts:
            self._check(name, part, FORMATS)
        runs = groupby(parts, key=lambda item: self._target(*item))
        return [(format, list(run)) for format, run in runs]

    def _check(self, name: str, part: ParameterPart, formats: Sequence[str]) -> None:
        if part.tensor.format not in formats:
            raise StartupError(
                "no kernel reads the format of this parameter",
                path=self.artifact.path, where=name,
                got=part.tensor.format, want=", ".join(formats),
            )  # fmt: skip

    def _requantised(self, name: str, part: ParameterPart) -> str | None:
        return self._requantization.target(name) if part.tensor.format == nf.BF16 else None

    def _target(self, name: str, part: ParameterPart) -> str:
        format = self._requantised(name, part) or part.tensor.format
        direct = format in (nf.BF16, nf.FP32)
        return self._direct if self._decoded or direct else format

    def _join(self, format: str, parts: Sequence[tuple[str, ParameterPart]]) -> Matrix:
        rows = [part.rows[1] - part.rows[0] for _, part in parts]
        columns = math.prod(parts[0][1].tensor.shape[1:])
        joined = empty_matrix(format, sum(rows), columns, self.device)
        self.allocated += [plane.nbytes for plane in joined.planes.values()]
        begin = 0
        for requantised, part in self._merge(parts):
            count = part.rows[1] - part.rows[0]
            self._transfers.append(RowTransfer(part, (joined,), (begin,), count, requantised))
            begin += count
        return joined

    def _merge(
        self, parts: Sequence[tuple[str, ParameterPart]]
    ) -> Iterator[tuple[str | None, ParameterPart]]:
        """Yield the parts, those that follow each other in one tensor as one: experts come by the
        thousand. Re-quantised ones stay apart, each with scales of its own."""
        held: ParameterPart | None = None
        for name, part in parts:
            requantised = self._requantised(name, part)
            if requantised is not None:
                if held is not None:
                    yield None, held
                held = None
                yield requantised, part
            elif held is not None and held.tensor is part.tensor and held.end == part.begin:
                held = ParameterPart(part.tensor, held.begin, part.end)
            else:
                if held is not None:
                    yield None, held
                held = part
        if held is not None:
            yield None, held


def _stored_bytes(part: ParameterPart) -> int:
    return 2 if part.tensor.format == nf.BF16 else 4
