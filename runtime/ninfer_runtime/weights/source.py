"""Parameters of an artifact as tensors on a device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.block_scale import gather_scales
from ninfer_formats.layouts.rows import RowView, row_divisors, scale_groups
from ninfer_formats.parameters import Parameter
from ninfer_formats.reader import Artifact
from ninfer_kernels.linear import Matrix, blank_matrix, decode_matrix

_DIRECT = {torch.bfloat16: nf.BF16, torch.float32: nf.FP32}


class WeightSource:
    """Reads parameters of one artifact.

    `dtype` is the compute type: vectors come in it, and direct matrices too. With `decoded` every
    matrix comes in it, which costs memory and saves decoding in every product.
    """

    def __init__(
        self, artifact: Artifact, device: torch.device, dtype: torch.dtype, decoded: bool
    ) -> None:
        self.artifact, self.device, self.dtype, self.decoded = artifact, device, dtype, decoded

    def has(self, name: str) -> bool:
        return name in self.artifact.bindings

    def vector(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a direct parameter in its own shape and the compute type, or `dtype`."""
        values = self.artifact.parameter(name).decode()
        return torch.from_numpy(values).to(self.device, dtype or self.dtype)

    def matrix(self, *names: str) -> Matrix:
        """Return the rows of the named parameters, which have one format, as one matrix."""
        (joined,) = self.matrices(*names)
        return joined

    def matrices(self, *names: str) -> tuple[Matrix, ...]:
        """Return the rows of the named parameters in order: one matrix for each run of parameters
        of the same format."""
        views = [view for name in names for view in self._views(name)]
        runs = groupby(views, key=lambda view: self._target(view.format))
        return tuple(self._join(format, list(run)) for format, run in runs)

    def _views(self, name: str) -> tuple[RowView, ...]:
        parameter: Parameter = self.artifact.parameter(name)
        return parameter.views()

    def _target(self, format: str) -> str:
        direct = format in (nf.BF16, nf.FP32)
        return _DIRECT[self.dtype] if self.decoded or direct else format

    def _join(self, format: str, views: Sequence[RowView]) -> Matrix:
        rows, columns = sum(view.rows for view in views), views[0].shape[1]
        joined = blank_matrix(format, rows, columns, self.device)
        begin = 0
        for view in views:
            self._place(view, joined.cut_rows(begin, begin + view.rows))
            begin += view.rows
        return joined

    def _place(self, view: RowView, target: Matrix) -> None:
        if view.format == target.format:
            for name, plane in target.planes.items():
                plane.copy_(read_plane(view, name, plane))
            return
        rows, columns = view.shape
        stored = blank_matrix(view.format, rows, columns)
        for name, plane in stored.planes.items():
            plane.copy_(read_plane(view, name, plane))
        target.planes["values"].copy_(decode_matrix(stored.to(self.device)))


def read_plane(view: RowView, name: str, plane: torch.Tensor) -> torch.Tensor:
    """Return a plane of a row view in the form that kernels want (shape and dtype of `plane`)."""
    if name == "divisor":
        return torch.from_numpy(row_divisors(view))
    if view.format == nf.NVFP4 and name == "scales":
        words = gather_scales(view.planes["scales"], 0, view.rows, scale_groups(view))
        return torch.from_numpy(np.ascontiguousarray(words))
    # A copy: the mapped file is read-only, which torch tensors cannot be.
    data = torch.from_numpy(np.array(view.planes[name]))
    return data.view(plane.dtype).view(plane.shape)
