"""The service behind all routes: one engine process, and every request on its way through it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_formats.reader import Artifact
from ninfer_runtime.frontend.answer_parser import AnswerParser
from ninfer_runtime.frontend.frontend import Frontend, load_frontend
from ninfer_runtime.frontend.resources import read_json
from ninfer_runtime.frontend.template import ChatTemplate
from ninfer_runtime.models.qwen3_5.model import read_geometry
from ninfer_runtime.server.admission import Admission
from ninfer_runtime.server.answer import Answer, AnswerState, Choice
from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.card import ModelCard, make_card
from ninfer_runtime.server.engine_gauges import describe_slots, list_gauges
from ninfer_runtime.server.engine_process.entry import EngineSetup
from ninfer_runtime.server.engine_process.grammar import Grammars, grammars_available
from ninfer_runtime.server.engine_process.messages import (
    Admitted,
    Cancel,
    Ended,
    Failed,
    Gauges,
    Loading,
    Patches,
    Prefilled,
    Ready,
    Report,
    Said,
    Submit,
    WantPatches,
)
from ninfer_runtime.server.engine_process.process import EngineProcess
from ninfer_runtime.server.events import ERROR
from ninfer_runtime.server.preparation import Preparation, patches_of
from ninfer_runtime.server.prepared import Prepared
from ninfer_runtime.server.readiness import FAILED, LOADING, READY, STOPPING
from ninfer_runtime.server.requests import ChatRequest, TextRequest
from ninfer_runtime.server.sampling_defaults import SamplingDefaults, next_seed
from ninfer_runtime.server.service_options import ServiceOptions

_log = logging.getLogger(__name__)
_PREPARING_THREADS = 4
# Beyond what compilers of grammars and templates limit themselves to.
_PREPARING_SECONDS = 60.0


@dataclass(frozen=True)
class _Desk:
    """What the HTTP process itself knows of the model."""

    artifact: Artifact
    frontend: Frontend
    grammars: Grammars | None
    defaults: SamplingDefaults
    vocabulary: int


class Service:
    """Owned by one event loop; `open` starts it, `close` ends it."""

    def __init__(self, setup: EngineSetup, options: ServiceOptions | None = None) -> None:
        self._setup, self._options = setup, options or ServiceOptions()
        self._status: tuple[str, Any] = (LOADING, 0.0)
        self._threads = ThreadPoolExecutor(_PREPARING_THREADS, "prepare")
        self._process: EngineProcess | None = None
        self._desk: _Desk | None = None
        self._ready: Ready | None = None
        self._card: ModelCard | None = None
        self._preparation: Preparation | None = None
        self._admission = Admission(0, 0)
        self._gauges = Gauges()
        self._present: dict[int, tuple[AnswerState, Choice]] = {}
        self._next_key = 0
        # Set when the engine process is no more, whatever ended it.
        self.gone = asyncio.Event()
        self.exit_status: int | None = None
        self.failure: Failed | None = None

    @property
    def status(self) -> tuple[str, Any]:
        """`loading` with the percentage, `ready`, `failed` with the reason, or `stopping`."""
        return self._status

    @property
    def card(self) -> ModelCard:
        """The model; only once the service is ready."""
        assert self._card is not None
        return self._card

    @property
    def tokenizer(self) -> Any:
        assert self._desk is not None
        return self._desk.frontend.tokenizer

    @property
    def engine_pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def open(self) -> None:
        """Start the engine process and load the frontend; returns at once, see `status`."""
        loop = asyncio.get_running_loop()
        self._loop = loop

        def hand_over(act: Callable[[Any], None]) -> Callable[[Any], None]:
            def call(argument: Any) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(act, argument)

            return call

        self._process = EngineProcess(
            self._setup, hand_over(self._receive), hand_over(self._notice_end)
        )
        self._loading = asyncio.create_task(self._load())

    async def close(self, limit: float = 10.0) -> None:
        """Refuse new requests, let those under way finish for `limit` seconds, end the engine."""
        if self._status[0] == LOADING:
            self.kill()  # it has nothing to finish
        if self._status[0] != FAILED:
            self._status = (STOPPING, None)
        if self._process is not None:
            await asyncio.to_thread(self._process.stop, limit)
            await self.gone.wait()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def kill(self) -> None:
        """End the engine process at once."""
        if self._process is not None:
            self._process.kill()

    async def prepare_chat(self, request: ChatRequest) -> Prepared:
        """Return a conversation ready to start. ApiError 400 names the field that is at fault."""
        return await self._prepare(
            lambda preparation: preparation.prepare_chat(request), counted=request.counted
        )

    async def prepare_text(self, request: TextRequest) -> Prepared:
        """Return a text ready to go on with. ApiError 400 names the field that is at fault."""
        return await self._prepare(lambda preparation: preparation.prepare_text(request))

    def start(self, prepared: Prepared) -> Answer:
        """Queue a request, one for each of its choices. ApiError 429 when too many wait."""
        self._require_ready()
        self._admission.enter(prepared.choices)
        choices = tuple(self._make_choice(prepared, index) for index in range(prepared.choices))
        state = AnswerState(prepared, choices, self._loop.create_future())
        left = prepared.began + self._options.pending_seconds - time.monotonic()
        state.timer = self._loop.call_later(max(0.0, left), self._give_up, state)
        for choice in choices:
            self._present[choice.key] = (state, choice)
            self._send(_submit(prepared, choice))
        return Answer(state, lambda: self._let_go(state))

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the ids of a text; with `special` control tokens spelled in it are such."""
        return self.tokenizer.encode(text) if special else self.tokenizer.encode_literal(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def slots(self) -> list[dict[str, Any]]:
        """Return what every lane does."""
        return [] if self._ready is None else describe_slots(self._ready, self._present.values())

    def counters(self) -> dict[str, float]:
        """Return gauges and counts of the engine by name."""
        if self._ready is None:
            return {}
        return list_gauges(self._ready, self._gauges, self._admission.present)

    async def _load(self) -> None:
        try:
            self._desk = await asyncio.to_thread(_open_desk, self._setup, self._options)
            self._become_ready()
        except Exception as error:
            self._give_up_loading(error)

    def _give_up_loading(self, error: Exception) -> None:
        if not isinstance(error, NinferError):
            _log.error("the frontend cannot be loaded", exc_info=error)
        self._fail(str(error))
        self.kill()

    def _become_ready(self) -> None:
        """Be ready once both processes are."""
        if self._desk is None or self._ready is None or self._status[0] != LOADING:
            return
        desk = self._desk
        self._card = make_card(
            desk.artifact, desk.frontend, desk.vocabulary, self._ready, self._options.model_id
        )
        self._preparation = Preparation(
            desk.frontend, desk.grammars, desk.defaults, self._card, self._options
        )
        self._admission = Admission(self._ready.lanes, self._options.max_pending)
        self._status = (READY, 0)

    async def _prepare(
        self, act: Callable[[Preparation], Prepared], *, counted: bool = False
    ) -> Prepared:
        self._require_ready()
        assert self._preparation is not None
        self._admission.begin(counted=counted)
        work = self._threads.submit(act, self._preparation)
        # Of a request that is given up the thread goes on, and so does its count.
        work.add_done_callback(lambda _: self._call(self._admission.finish))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), _PREPARING_SECONDS)
        except TimeoutError:
            raise invalid(
                f"the request could not be prepared within {_PREPARING_SECONDS:.0f} s"
            ) from None

    def _require_ready(self) -> None:
        state, detail = self._status
        if state != READY:
            from ninfer_runtime.server.readiness import explain_state

            raise explain_state(state, detail)

    def _make_choice(self, prepared: Prepared, index: int) -> Choice:
        parser = None
        if prepared.tools is not None:
            parser = AnswerParser(
                bool(prepared.thinking.enabled), prepared.tools, parallel=prepared.parallel_calls
            )
        key = self._next_key
        self._next_key += 1
        return Choice(key, index, parser)

    def _send(self, message: Any) -> None:
        if self._process is not None:
            self._process.send(message)

    def _give_up(self, state: AnswerState) -> None:
        """End a request that waited too long for a lane."""
        seconds = self._options.pending_seconds
        message = f"no lane was free within {seconds:g} s (--pending-timeout-ms)"
        state.fail(ApiError(503, message, "request_queue_timeout", retry_after=5))
        self._abort(state)

    def _let_go(self, state: AnswerState) -> None:
        """The reader is gone; called in whatever thread drops it."""
        self._call(lambda: self._abort(state))

    def _call(self, act: Callable[[], None]) -> None:
        """Call in the loop, from whatever thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def _abort(self, state: AnswerState) -> None:
        state.closed = True
        state.fail(ApiError(499, "the request was cancelled", "cancelled"))
        for choice in state.choices:
            if choice.key in self._present:
                self._send(Cancel(choice.key))

    def _receive(self, report: Report) -> None:
        if report.gauges.pages:
            self._gauges = report.gauges
        for message in report.messages:
            self._handle(message)

    def _handle(self, message: Any) -> None:
        match message:
            case Loading() if self._status[0] == LOADING:
                share = message.done / max(message.total, 1)
                self._status = (LOADING, min(100.0, 100.0 * share))
            case Ready():
                self._ready = message
                try:
                    self._become_ready()
                except Exception as error:  # in a callback nobody would hear of it
                    self._give_up_loading(error)
            case Failed():
                self.failure = message
                if message.trace:
                    _log.error("the engine failed:\n%s", message.trace)
                self._fail(message.why)
            case Admitted() | Prefilled() | Said() | WantPatches() | Ended():
                found = self._present.get(message.key)
                if found is not None:
                    self._guard(message, *found)

    def _guard(self, message: Any, state: AnswerState, choice: Choice) -> None:
        """Handle a message; whatever goes wrong ends this choice and no other."""
        try:
            self._handle_choice(message, state, choice)
        except Exception:
            _log.exception("choice %d cannot be read any more", choice.key)
            choice.parser = None
            if choice.key in self._present:
                self._send(Cancel(choice.key))
                lost = Ended(choice.key, ERROR, error="the answer could not be read")
                self._end(lost, state, choice)

    def _handle_choice(self, message: Any, state: AnswerState, choice: Choice) -> None:
        match message:
            case Admitted():
                state.admit(choice, message)
            case Prefilled():
                choice.processed = message.tokens
            case Said():
                state.say(choice, message)
            case WantPatches():
                patches = patches_of(state.prepared.pictures[message.item])
                self._send(Patches(choice.key, message.item, patches))
            case Ended():
                self._end(message, state, choice)

    def _end(self, message: Ended, state: AnswerState, choice: Choice) -> None:
        del self._present[choice.key]
        self._admission.leave()
        if message.reason == ERROR:
            why = message.error or "the engine failed"
            status, code = (400, "invalid_prompt") if message.refused else (500, "engine_failed")
            state.fail(ApiError(status, why, code))
        state.end(choice, message)

    def _fail(self, why: str) -> None:
        if self._status[0] in (LOADING, READY):
            self._status = (FAILED, why)
        # Requests that the engine could not end any more.
        for state, choice in list(self._present.values()):
            self._end(
                Ended(choice.key, ERROR, error=f"the engine has failed: {why}"), state, choice
            )

    def _notice_end(self, status: int | None) -> None:
        self.exit_status = status
        stopped = self._status[0] == STOPPING and status == 0
        if not stopped:
            self._fail(f"the engine process ended with status {status}")
        for state, choice in list(self._present.values()):
            self._end(Ended(choice.key, ERROR, error="the server was stopped"), state, choice)
        self.gone.set()


def _open_desk(setup: EngineSetup, options: ServiceOptions) -> _Desk:
    artifact = setup.open()
    geometry = read_geometry(artifact)
    frontend = load_frontend(artifact, geometry)
    if options.template_source is not None:
        template = ChatTemplate(options.template_source)
        frontend = dataclasses.replace(frontend, template=template)
    vocabulary = geometry.text.vocab_size
    grammars = Grammars(frontend.tokenizer, vocabulary) if grammars_available() else None
    preset = read_json(artifact, "generation_config.json") or {}
    defaults = SamplingDefaults(preset, options.sampling, options.greedy)
    defaults.choose(options.sampling)
    return _Desk(artifact, frontend, grammars, defaults, vocabulary)


def _submit(prepared: Prepared, choice: Choice) -> Submit:
    seed = next_seed(prepared.sampling, choice.index)
    return Submit(
        key=choice.key,
        prompt=prepared.prompt,
        max_tokens=prepared.max_tokens,
        sampling=dataclasses.replace(prepared.sampling, seed=seed),
        stops=prepared.stops,
        watch=prepared.watch,
        logprobs=prepared.logprobs,
        media=prepared.media,
        boundaries=prepared.boundaries,
        submitted=time.monotonic(),
    )
