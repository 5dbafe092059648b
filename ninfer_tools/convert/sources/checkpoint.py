"""A checkpoint: config, tensors by name, frontend files, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs.rounding import widen
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.sources.files import CheckpointFiles, LocalFolder
from ninfer_tools.convert.sources.json_text import read_json_object
from ninfer_tools.convert.sources.prefixes import Prefixes, find_prefixes
from ninfer_tools.convert.sources.resources import read_resources
from ninfer_tools.convert.sources.safetensors_file import ITEM_BITS, StoredTensor
from ninfer_tools.convert.sources.weight_files import WeightFiles, read_weight_files

CONFIG = "config.json"
MAX_CONFIG_BYTES = 10_000_000
# bf16 travels as uint16 words and fp8 as uint8 words, as in the codecs.
_WORD_TYPES = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
_SCALARS = ("F32", "BF16", "F16")
# The config of a checkpoint whose config.json cannot be read; a problem says why.
UNREADABLE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint; only config, headers and frontend files have been read.

    `problems` are faults of the files themselves, all of them; a checkpoint that has some is not
    to be converted. `unreadable` are tensors that only the index knows. `notices` are plain
    sentences for the report.
    """

    files: CheckpointFiles
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    weight_files: tuple[str, ...]
    resources: Mapping[str, bytes]
    prefixes: Prefixes
    unreadable: frozenset[str]
    problems: tuple[NinferError, ...]
    notices: tuple[str, ...]

    @property
    def label(self) -> str:
        return self.files.label

    def path_of(self, tensor: StoredTensor) -> str:
        return self.files.path(tensor.file)

    def words(self, tensor: StoredTensor) -> NDArray[Any]:
        """Return the tensor in its own shape, read-only and memory-mapped, never copied.

        bfloat16 comes as uint16 words and 8-bit floats as uint8 words; the array may not be
        aligned. Raises UsageError where only headers are at hand.
        """
        kind = np.dtype(_WORD_TYPES.get(tensor.dtype, "u1"))
        if kind.itemsize * 8 != ITEM_BITS[tensor.dtype]:
            raise UsageError(
                "tensor has a type that is not read", path=self.path_of(tensor), where=tensor.name,
                got=tensor.dtype,
            )  # fmt: skip
        raw = self.files.map(tensor.file)[tensor.begin : tensor.end]
        return raw.view(kind).reshape(tensor.shape)

    def scalar(self, tensor: StoredTensor) -> np.float32:
        """Return the one element of a tensor as float32."""
        if tensor.dtype not in _SCALARS or tensor.elements != 1:
            raise NinferError(
                "scale is not one number", path=self.path_of(tensor), where=tensor.name,
                got=f"{tensor.dtype} {list(tensor.shape)}", want="F32 []",
            )  # fmt: skip
        raw = self.files.read(tensor.file, tensor.begin, tensor.end)
        return widen(np.frombuffer(raw, _WORD_TYPES[tensor.dtype]))[0]


def open_checkpoint(source: str | os.PathLike[str] | CheckpointFiles) -> Checkpoint:
    """Open the checkpoint in a folder, or in files that lie elsewhere.

    Raises UsageError when there is no such folder; everything that is wrong inside comes back in
    `problems`.
    """
    named = isinstance(source, str | os.PathLike)
    files: CheckpointFiles = LocalFolder(source) if named else source
    problems: list[NinferError] = []
    config = UNREADABLE
    weights = WeightFiles()
    try:
        config = _read_config(files)
    except NinferError as error:
        problems.append(error)
    try:
        weights = read_weight_files(files)
    except NinferError as error:
        problems.append(error)
    resources, notices, unread = read_resources(files)
    problems += (*weights.problems, *unread)
    names = (*weights.tensors, *weights.unreadable)
    return Checkpoint(
        files, config, weights.tensors, weights.files, resources, find_prefixes(names),
        frozenset(weights.unreadable), tuple(problems), (*weights.notices, *notices),
    )  # fmt: skip


def _read_config(files: CheckpointFiles) -> dict[str, Any]:
    if CONFIG not in files.names():
        raise NinferError(f"no {CONFIG}", path=files.label, remedy="name a checkpoint's folder")
    if files.size(CONFIG) > MAX_CONFIG_BYTES:
        raise NinferError("file is too large", path=files.path(CONFIG), got=files.size(CONFIG))
    return read_json_object(files.read(CONFIG, 0, MAX_CONFIG_BYTES), CONFIG, files.path(CONFIG))
