"""Engines on the device that is checked, and on the processor as what they are held against."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from builders.engines import Answer, answer
from gpu_engine.models import Shelf
from ninfer_formats.reader import Artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Media, Request

MTP = {"speculator": "mtp", "draft_tokens": 3}
SPECULATIONS: dict[str, dict[str, Any]] = {"plain": {}, "mtp": MTP}


@dataclass(frozen=True)
class Bench:
    """Where engines run: `device`, and in float32 on a processor, where rows are exact."""

    shelf: Shelf
    device: str
    seed: int

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def start(self, artifact: Artifact, **options: Any) -> Engine:
        """Return an engine on the device, after what earlier ones held is given back."""
        release()
        options.setdefault("max_context", 512)
        options.setdefault("kv_capacity", options["max_context"] * options.get("lanes", 1))
        return Engine(artifact, EngineConfig(device=self.device, **options))

    def start_exact(self, artifact: Artifact, **options: Any) -> Engine:
        """Return an engine on the processor in float32."""
        options.setdefault("max_context", 512)
        return Engine(artifact, EngineConfig(device="cpu", dtype="fp32", **options))

    def prompt(self, length: int, salt: int, vocabulary: int = 289) -> tuple[int, ...]:
        """Return random ids that depend on the seed of the run."""
        generator = torch.Generator().manual_seed(1000 * self.seed + salt)
        return tuple(torch.randint(0, vocabulary, (length,), generator=generator).tolist())


def taken_bytes(device: str) -> int:
    """Return what is taken of the device, by whomever."""
    if not device.startswith("cuda"):
        return 0
    torch.zeros(1, device=device)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def release() -> None:
    """Give the memory of engines that are gone back to the driver."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def prompt_logits(
    engine: Engine, ids: Sequence[int], chunk: int | None = None, media: Media | None = None
) -> torch.Tensor:
    """Return logits fp32 [T, V], on the host, after every token of a prompt prefilled in chunks."""
    request = Request((*ids, 0), 1, media=media)
    positions = text_positions(len(ids)) if media is None else media.positions
    engine.state.decoder.recurrent.reset(0)
    pages = torch.arange(engine.settings.pages, dtype=torch.int32, device=engine.settings.device)
    place, step = Place(0, pages[None]), chunk or len(ids)
    parts = []
    for begin in range(0, len(ids), step):
        end = min(begin + step, len(ids))
        hidden = run_chunk(engine.model, engine.state, request, positions, place, begin, end)
        parts.append(engine.model.score(hidden).cpu())
    engine.state.decoder.recurrent.reset(0)
    return torch.cat(parts)


def greedy(engine: Engine, ids: Sequence[int], count: int, media: Media | None = None) -> Answer:
    """Return the greedy answer to a prompt, with scores."""
    return answer(engine, Request(tuple(ids), count, logprobs=5, media=media))


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have something else under a name of a module or class for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
