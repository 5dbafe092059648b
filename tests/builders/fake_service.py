"""A scripted service: routes can be tested without an engine behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.events import STOP, Delta, Finished, Timings, Usage
from ninfer_runtime.server.requests import ChatRequest, TextRequest, ThinkingFields

Item = tuple[int, Delta | Finished] | float | Exception


@dataclass(frozen=True)
class FakeCard:
    """A model of nothing."""

    id: str = "demo"
    created: int = 1_700_000_000
    max_context: int = 4096
    vocabulary: int = 1000
    lanes: int = 4
    vision: bool = True
    architecture: str = "qwen3_5"
    parameters: int = 1_000_000
    bytes: int = 2_000_000
    efforts: Sequence[str] = ("low", "medium", "xhigh")
    template_names: frozenset[str] = frozenset({"preserve_thinking", "add_vision_id"})


@dataclass(frozen=True)
class FakePrepared:
    request: ChatRequest | TextRequest
    ids: tuple[int, ...]
    text: str
    thinking: ThinkingFields
    max_tokens: int


def end(reason: str = STOP, *, completion: int = 3, cached: int = 2, **more: Any) -> Finished:
    """Return an end with a usage and timings that a human can check."""
    usage = Usage(
        prompt=7, completion=completion, cached=cached, reasoning=more.pop("reasoning", 1)
    )
    timings = Timings(queued=0.25, prefill=0.5, decode=0.1, drafted=4, accepted=3)
    return Finished(reason, usage, more.pop("timings", timings), **more)


def say(*pieces: str, reason: str = STOP) -> list[Item]:
    """Return the script of an answer in pieces."""
    return [*((0, Delta(content=piece)) for piece in pieces), (0, end(reason))]


class FakeAnswer:
    """Plays a script: items are given, numbers are seconds to wait, exceptions are raised."""

    def __init__(self, service: FakeService, prepared: FakePrepared) -> None:
        self._service, self._items = service, list(service.script)
        self.prompt_tokens = len(prepared.ids)
        self.reuse, self.differs_at = "continuation", 5
        self.cancelled = False
        service.open += 1

    async def admitted(self) -> int:
        for step in self._service.admission:
            if isinstance(step, Exception):
                raise step
            await asyncio.sleep(step)
        return self._service.cached

    def __aiter__(self) -> AsyncIterator[tuple[int, Delta | Finished]]:
        return self._play()

    async def _play(self) -> AsyncIterator[tuple[int, Delta | Finished]]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, float | int):
                await asyncio.sleep(item)
            else:
                yield item

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._service.open -= 1


@dataclass
class FakeService:
    """`seen` are the requests that were prepared; `open` counts answers nobody has let go of."""

    script: list[Item] = field(default_factory=lambda: say("Hel", "lo"))
    admission: list[float | Exception] = field(default_factory=list)
    card: FakeCard = FakeCard()
    status: tuple[str, Any] = ("ready", 0)
    refusal: Exception | None = None
    cached: int = 2
    open: int = 0
    seen: list[ChatRequest | TextRequest] = field(default_factory=list)

    async def prepare_chat(self, request: ChatRequest) -> FakePrepared:
        self.seen.append(request)
        text = "".join(f"<{m['role']}>{m.get('content')}" for m in request.messages)
        return FakePrepared(request, tuple(range(7)), text, request.thinking, 100)

    async def prepare_text(self, request: TextRequest) -> FakePrepared:
        self.seen.append(request)
        prompt = request.prompt
        text = prompt if isinstance(prompt, str) else self.decode(prompt)
        return FakePrepared(request, tuple(self.encode(text, False)), text, ThinkingFields(), 100)

    def start(self, prepared: FakePrepared) -> FakeAnswer:
        if self.refusal is not None:
            raise self.refusal
        return FakeAnswer(self, prepared)

    def slots(self) -> list[dict[str, Any]]:
        return [{"id": lane, "is_processing": lane < self.open} for lane in range(self.card.lanes)]

    def counters(self) -> dict[str, float]:
        return {"kv_pages_used": 3, "kv_pages": 64, "waiting": 1, "running": self.open}

    @property
    def tokenizer(self) -> FakeService:
        return self

    def token_bytes(self, id: int) -> bytes:
        return b"\xf0\x9f" if id == 999 else chr(id).encode()

    def encode(self, text: str, special: bool) -> list[int]:
        return [min(ord(sign), 999) for sign in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(id % 0xD800) for id in ids)
