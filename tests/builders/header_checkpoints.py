"""Checkpoints of full size that consist of config, headers and frontend files: nothing to read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.published import (
    LEGACY_RESOURCE_BYTES,
    QWEN3_6_RESOURCE_BYTES,
)
from ninfer_tools.convert.request import OpenedSource
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.synthetic import checkpoint_configs
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor
from ninfer_tools.synthetic.checkpoint_tensors import list_checkpoint_tensors
from ninfer_tools.synthetic.drafter_tensors import list_drafter_tensors
from ninfer_tools.synthetic.frontend import build_frontend
from ninfer_tools.synthetic.vocabulary import Vocabulary

_TYPES = {nf.BF16: "BF16", nf.FP32: "F32"}
_ITEM = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}
Entry = tuple[str, tuple[int, ...]]


class HeaderFiles:
    """Files in memory; weights are zeros that are never stored, single scales are 2.0."""

    def __init__(self, label: str, files: Mapping[str, bytes], entries: Mapping[str, Entry]):
        self.label = label
        self._files = dict(files)
        self._head, self._size = encode_header(entries)
        self._two = np.array(2.0, "<f4").tobytes()

    def names(self) -> frozenset[str]:
        return frozenset([*self._files, "model.safetensors"])

    def size(self, name: str) -> int:
        return len(self._files[name]) if name in self._files else len(self._head) + self._size

    def path(self, name: str) -> str:
        return f"{self.label}/{name}"

    def read(self, name: str, begin: int, end: int) -> bytes:
        if name in self._files:
            return self._files[name][begin:end]
        if begin < len(self._head):
            return self._head[begin:end]
        assert end - begin == 4, "only headers and single scales may be read"
        return self._two

    def map(self, name: str):
        raise AssertionError("weights may not be read")


def encode_header(entries: Mapping[str, Entry]) -> tuple[bytes, int]:
    """Return the beginning of a safetensors file and the byte count of its data."""
    header, position = {}, 0
    for name, (dtype, shape) in entries.items():
        end = position + math.prod(shape) * _ITEM[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text, position


def sized_frontend(release: str) -> dict[str, bytes]:
    """Return the frontend files, padded to the sizes of the published artifacts of a release.

    JSON ends in spaces and the template in line ends; only the total of qwen3.8 is known.
    """
    made = build_frontend()
    sizes = list(QWEN3_6_RESOURCE_BYTES)
    sizes[0] += LEGACY_RESOURCE_BYTES[release] - sum(sizes)
    smaller = {
        "generation_config.json": b"{}",
        "preprocessor_config.json": b'{"patch_size":16}',
        "video_preprocessor_config.json": b'{"patch_size":16}',
    }
    made |= smaller
    filled = {}
    for (role, data), size in zip(made.items(), sizes, strict=True):
        assert len(data) <= size, role
        filled[role] = data.ljust(size, b"\n" if role.endswith(".jinja") else b" ")
    return filled


def plain(tensor: CheckpointTensor) -> dict[str, Entry]:
    return {tensor.name: (_TYPES[tensor.format], tensor.shape)}


def store_as(tensor: CheckpointTensor, format: str) -> dict[str, Entry]:
    """Return the tensors of a compressed-tensors checkpoint that stores a matrix so."""
    n, k = tensor.shape
    module = tensor.module
    if format == nf.FP8:
        return {
            f"{module}.weight": ("F8_E4M3", (n, k)),
            f"{module}.weight_scale": ("BF16", (n, 1)),
        }
    return {
        f"{module}.weight_packed": ("U8", (n, k // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (n, k // 16)),
        f"{module}.weight_global_scale": ("F32", (1,)),
        f"{module}.input_global_scale": ("F32", (1,)),
    }


def open_base(
    geometry: ModelGeometry,
    name: str,
    frontend: Mapping[str, bytes],
    form: Callable[[CheckpointTensor], str | None] = lambda tensor: None,
) -> OpenedSource:
    """Return a checkpoint of text, mtp and vision; `form` names what is stored quantised."""
    entries: dict[str, Entry] = {}
    for tensor in list_checkpoint_tensors(geometry):
        format = form(tensor)
        entries |= plain(tensor) if format is None else store_as(tensor, format)
    config = checkpoint_configs.describe_checkpoint(geometry, Vocabulary())
    files = {"config.json": json.dumps(config).encode(), **frontend}
    return OpenedSource(open_checkpoint(HeaderFiles(name, files, entries)), name)


def open_drafter(geometry: ModelGeometry) -> OpenedSource:
    drafter = geometry.drafter
    assert drafter is not None
    entries: dict[str, Entry] = {}
    for tensor in list_drafter_tensors(drafter, geometry.text):
        entries |= plain(tensor)
    config = json.dumps(checkpoint_configs.describe_drafter(geometry, drafter)).encode()
    files = HeaderFiles("drafter", {"config.json": config}, entries)
    return OpenedSource(open_checkpoint(files), "drafter")


def write_sparse(folder: Path, opened: OpenedSource) -> Path:
    """Write a checkpoint as a folder whose weights are one hole: zeros that cost no disk."""
    files = opened.checkpoint.files
    folder.mkdir(parents=True)
    for name in files.names():
        if name == "model.safetensors":
            with (folder / name).open("wb") as file:
                head = int.from_bytes(files.read(name, 0, 8), "little") + 8
                file.write(files.read(name, 0, head))
                file.truncate(files.size(name))
        else:
            (folder / name).write_bytes(files.read(name, 0, files.size(name)))
    return folder
