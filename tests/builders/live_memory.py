"""What the passes of a GPU would hold of its memory, found on tensors without any.

Kernels are not launched; everything around them runs, on torch's meta device and at any size.
"""

from __future__ import annotations

import importlib
import pkgutil
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ninfer_kernels
from ninfer_formats.reader import Artifact
from ninfer_kernels.launch import TRITON
from ninfer_runtime.config import EngineConfig, Settings, resolve
from ninfer_runtime.engine.lanes import allocate_lanes
from ninfer_runtime.models.qwen3_5 import model as models
from ninfer_runtime.weights.preflight import shape_of

META = torch.device("meta")
SMALL, SEGMENT, LEAST, UNIT = 1 << 20, 2 << 20, 20 << 20, 512


class LiveMemory(TorchDispatchMode):
    """Notes every tensor that is made inside, and when it is gone.

    `changes` are (key, bytes) of what is made, and (key, 0) of what is gone, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[int, int]] = []
        self._outside: set[int] = set()
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, function, types, arguments=(), options=None) -> Any:
        for storage in _storages((arguments, options)):
            if storage._cdata not in self._live:
                self._outside.add(storage._cdata)
        results = function(*arguments, **(options or {}))
        for storage in _storages(results):
            key = storage._cdata
            if key not in self._live and key not in self._outside:
                self._live[key] = storage.nbytes()
                self.changes.append((key, storage.nbytes()))
                weakref.finalize(storage, self._forget, key)
        return results

    def _forget(self, key: int) -> None:
        if self._live.pop(key, None) is not None:
            self.changes.append((key, 0))

    @property
    def peak(self) -> int:
        """The most bytes that were held at once."""
        sizes: dict[int, int] = {}
        held = most = 0
        for key, size in self.changes:
            held += size - sizes.get(key, 0)
            sizes[key] = size
            most = max(most, held)
        return most


def _storages(item: Any) -> list[torch.UntypedStorage]:
    return [t.untyped_storage() for t in tree_leaves(item) if isinstance(t, torch.Tensor)]


class Segments:
    """torch's allocator of one kind of tensors: segments cut into blocks, the least that suffices
    taken first, neighbours joined when they are free."""

    def __init__(self, sizes: list[int], least_rest: int) -> None:
        self.segments = [[[size, None]] for size in sizes]
        self._least_rest = least_rest

    def take(self, key: int, size: int, fresh: int) -> None:
        free = [
            (block[0], s, b)
            for s, blocks in enumerate(self.segments)
            for b, block in enumerate(blocks)
            if block[1] is None and block[0] >= size
        ]
        if not free:
            self.segments.append([[fresh, None]])
            free = [(fresh, len(self.segments) - 1, 0)]
        room, s, b = min(free)
        if room - size >= self._least_rest:
            self.segments[s][b][0] = size
            self.segments[s].insert(b + 1, [room - size, None])
        self.segments[s][b][1] = key

    def give(self, key: int) -> bool:
        for blocks in self.segments:
            for block in blocks:
                if block[1] == key:
                    block[1] = None
                    _join(blocks)
                    return True
        return False


def _join(blocks: list[list[Any]]) -> None:
    place = 0
    while place + 1 < len(blocks):
        if blocks[place][1] is None and blocks[place + 1][1] is None:
            blocks[place][0] += blocks.pop(place + 1)[0]
        else:
            place += 1


def replay(changes: list[tuple[int, int]], large: int, small: int) -> tuple[int, int]:
    """Return how many segments torch's allocator has in the end, for tensors above 1 MiB and up to
    it, when it had one of `large` bytes and `small` bytes in segments of 2 MiB."""
    above = Segments([large], SMALL + 1)
    below = Segments([SEGMENT] * (small // SEGMENT), UNIT)
    for key, size in changes:
        taken = -(-size // UNIT) * UNIT
        if size == 0:
            _ = above.give(key) or below.give(key)
        elif taken <= SMALL:
            below.take(key, taken, SEGMENT)
        else:
            above.take(key, taken, LEAST if taken < LEAST // 2 else -(-taken // SEGMENT) * SEGMENT)
    return len(above.segments), len(below.segments)


def use_meta(patch: pytest.MonkeyPatch) -> None:
    """Let meta tensors go the way of a GPU's, with kernels that do nothing."""
    from triton.runtime.jit import KernelInterface

    from ninfer_kernels.linear import op as linear_op

    patch.setattr(KernelInterface, "__getitem__", lambda kernel, grid: lambda *a, **k: None)
    for found in pkgutil.walk_packages(ninfer_kernels.__path__, "ninfer_kernels."):
        if found.name.endswith(".op"):
            module = importlib.import_module(found.name)
            if hasattr(module, "choose_backend"):
                patch.setattr(module, "choose_backend", lambda tensor, backend=None: TRITON)

    def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.empty(x.shape[0], weight.shape[0], dtype=torch.float32, device=META)

    patch.setattr(linear_op, "_mm_float32", multiply)
    patch.setattr(Settings, "activations", property(lambda settings: settings.dtype))
    patch.setattr(Settings, "decoded", property(lambda settings: False))


def load_meta(artifact: Artifact, patches: int, **options: Any) -> SimpleNamespace:
    """Return model, state, table and shape of an engine without memory."""
    geometry = models.read_geometry(artifact)
    config = EngineConfig(device="cpu", **options)
    settings = replace(resolve(config, geometry, False), device=META)
    source = models._open_source(artifact, geometry, settings)
    return SimpleNamespace(
        geometry=geometry,
        model=models._request(source, geometry, settings),
        state=models.allocate_state(geometry, settings, settings.lanes),
        table=allocate_lanes(settings, geometry.text.vocab_size),
        shape=replace(shape_of(settings), patches=patches, cuda_graph=True),
    )
