"""Services with an engine process of the demo model, and an event loop for them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninfer_formats.reader import open_artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.server.engine_process.entry import EngineSetup
from ninfer_runtime.server.events import CallDelta, Finished, ScoredToken
from ninfer_runtime.server.requests import AnswerFields, ChatRequest, SamplingFields, TextRequest
from ninfer_runtime.server.service import Service
from ninfer_runtime.server.service_options import ServiceOptions

GREEDY = SamplingFields(temperature=0)
_SECONDS = 60.0


@dataclass
class Whole:
    """All that came of one choice."""

    reasoning: str = ""
    content: str = ""
    calls: list[CallDelta] = field(default_factory=list)
    scores: list[ScoredToken] = field(default_factory=list)
    end: Finished | None = None
    pieces: int = 0

    @property
    def finished(self) -> Finished:
        assert self.end is not None
        return self.end


class LiveService:
    """`run` runs a coroutine in the service's loop, from the test's thread."""

    def __init__(
        self,
        file: Path,
        options: ServiceOptions | None = None,
        build: Callable[..., Any] | None = None,
        **config: Any,
    ) -> None:
        config = {"device": "cpu", "max_context": 512, "lanes": 2, "kv_capacity": 1024} | config
        setup = EngineSetup(
            functools.partial(open_artifact, file), EngineConfig(**config), build, threads=1
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.service = Service(setup, options)
        self.states: list[tuple[str, Any]] = []
        self.run(self.service.open())

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = _SECONDS) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def wait_until(self, state: str) -> Any:
        """Wait for a state; return what the service says of it. `states` keeps all on the way."""

        async def look() -> Any:
            while self.service.status[0] != state:
                if self.service.status not in self.states:
                    self.states.append(self.service.status)
                await asyncio.sleep(0.005)
            return self.service.status[1]

        return self.run(look())

    async def start(self, request: ChatRequest | TextRequest) -> Any:
        service = self.service
        text = isinstance(request, TextRequest)
        return service.start(
            await (service.prepare_text if text else service.prepare_chat)(request)
        )  # type: ignore[arg-type]

    async def ask(self, request: ChatRequest | TextRequest) -> list[Whole]:
        """Return what came of every choice of a request."""
        answer = await self.start(request)
        await answer.admitted()
        return await collect(answer)

    def close(self, limit: float = 0.0) -> None:
        self.run(self.service.close(limit))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def collect(answer: Any) -> list[Whole]:
    found: dict[int, Whole] = {}
    async for index, item in answer:
        whole = found.setdefault(index, Whole())
        assert whole.end is None, "a finished choice said more"
        if isinstance(item, Finished):
            whole.end = item
        else:
            whole.pieces += 1
            whole.reasoning += item.reasoning
            whole.content += item.content
            whole.calls += item.calls
            whole.scores += item.scores
    return [found[index] for index in sorted(found)]


def chat(text: str = "What is 2+2?", **more: Any) -> ChatRequest:
    """Return a greedy request of one message; fields of the answer go by their names."""
    names = ("max_tokens", "stop", "logprobs", "choices", "ignore_eos", "constraint", "sampling")
    fields = {name: more.pop(name) for name in names if name in more}
    answer = AnswerFields(**({"sampling": GREEDY, "max_tokens": 60} | fields))
    return ChatRequest(({"role": "user", "content": text},), answer, **more)
