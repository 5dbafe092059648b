"""Views of the planes inside the bytes of one encoded tensor, and the way back (rule LY-3)."""

from __future__ import annotations

import mmap
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import ArtifactError
from ninfer_formats.layouts.geometry import TensorGeometry

U8 = NDArray[np.uint8]
Planes: TypeAlias = dict[str, U8]
Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | NDArray[Any]


def as_bytes(buffer: Buffer) -> U8:
    """Return `buffer` as flat uint8 without copying."""
    if isinstance(buffer, np.ndarray):
        return buffer.reshape(-1).view(np.uint8)
    # An empty buffer has nothing to view, and numpy refuses it without naming the cause.
    return np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)


def split_planes(buffer: Buffer, geometry: TensorGeometry) -> Planes:
    """Return each plane as uint8 [rows, row_bytes], a view of `buffer`.

    Raises ArtifactError when the buffer has another length than the geometry.
    """
    flat = as_bytes(buffer)
    if flat.size != geometry.bytes:
        raise ArtifactError("encoded tensor has the wrong size", got=flat.size, want=geometry.bytes)
    return {
        plane.name: flat[plane.offset : plane.end].reshape(plane.rows, plane.row_bytes)
        for plane in geometry.planes
    }


def gaps_of(buffer: Buffer, geometry: TensorGeometry) -> list[tuple[str, U8]]:
    """Return the bytes between the planes, each under the name of the plane before it."""
    flat, found = as_bytes(buffer), []
    for plane, following in zip(geometry.planes, geometry.planes[1:], strict=False):
        if following.offset > plane.end:
            found.append((plane.name, flat[plane.end : following.offset]))
    return found


def blank_tensor(geometry: TensorGeometry) -> tuple[U8, Planes]:
    """Return zeroed bytes of a tensor and writable views of its planes."""
    flat = np.zeros(geometry.bytes, np.uint8)
    return flat, split_planes(flat, geometry)
