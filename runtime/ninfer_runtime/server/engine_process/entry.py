"""What the engine process does from its first to its last moment."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.reader import Artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.server.engine_process.channel import Channel
from ninfer_runtime.server.engine_process.inbox import Inbox
from ninfer_runtime.server.engine_process.messages import Failed, Loading, Ready, Report

FAILED_STATUS = 1
# How long the process may finish what it does after the other side is gone.
_GRACE_SECONDS = 2.0
_FLUSH_SECONDS = 10.0
_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True)
class EngineSetup:
    """How the engine is made; everything can be pickled.

    `open` opens the artifact, `build` makes the engine of artifact, configuration and progress.
    `tower_bytes` bounds the kept rows of pictures; `threads` are those of torch on a processor,
    None for its own choice.
    """

    open: Callable[[], Artifact]
    config: EngineConfig
    build: Callable[..., Any] | None = None
    tower_bytes: int = 1 << 30
    threads: int | None = None


def run_engine_process(setup: EngineSetup, connection: Connection) -> None:
    """Load the engine and serve requests of the pipe; exit with status 1 when the engine fails.

    Whoever stops the server stops its parent, which stops this process in order: it leaves
    Ctrl-C and SIGTERM, which reach the whole group, to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    inbox = Inbox()
    channel = Channel(connection, inbox.put, lambda: _leave(inbox))
    channel.start()
    try:
        _serve(setup, inbox, channel)
        status = 0
    except Exception as error:
        channel.send(_explain(error))
        status = FAILED_STATUS
    channel.flush(_FLUSH_SECONDS)
    # Threads of libraries may hang where the engine failed; nothing is left to be done.
    os._exit(status)


def _serve(setup: EngineSetup, inbox: Inbox, channel: Channel) -> None:
    from ninfer_runtime.server.engine_process.host import Host

    engine, tokenizer, grammars = _load(setup, channel)
    host = Host(engine, tokenizer, grammars, inbox, channel.send, setup.tower_bytes)
    channel.send(Report((_describe(engine),)))
    try:
        host.run()
    except Exception as error:
        host.abandon(_first_line(error))
        raise


def _load(setup: EngineSetup, channel: Channel) -> tuple[Any, Any, Any]:
    """Return engine, tokenizer and grammars; says how far the weights are."""
    import torch

    from ninfer_runtime.frontend.tokenizer import load_tokenizer
    from ninfer_runtime.server.engine_process.grammar import Grammars, grammars_available

    if setup.threads is not None:
        torch.set_num_threads(setup.threads)
    artifact = setup.open()
    tokenizer = load_tokenizer(artifact)
    build = setup.build
    if build is None:
        from ninfer_runtime.engine.engine import Engine as build
    total = count_bytes(artifact, setup.config)
    engine = build(artifact, setup.config, _Progress(total, channel.send))
    grammars = None
    if grammars_available():
        grammars = Grammars(tokenizer, engine.geometry.text.vocab_size)
    return engine, tokenizer, grammars


class _Progress:
    """Counts bytes that were read and says so, not too often."""

    def __init__(self, total: int, send: Callable[[Report], None]) -> None:
        self._total, self._send = total, send
        self._done, self._next = 0, 0.0

    def __call__(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now >= self._next or self._done >= self._total:
            self._next = now + _PROGRESS_SECONDS
            self._send(Report((Loading(self._done, self._total),)))


def count_bytes(artifact: Artifact, config: EngineConfig) -> int:
    """Return the stored bytes of the components that a configuration loads."""
    wanted = {"text"}
    if config.speculator is not None:
        wanted.add(config.speculator)
    if config.vision is not False:
        wanted.add("vision")
    if config.proposal_head:
        wanted.add("proposal")
    objects = {
        part.object
        for name, binding in artifact.bindings.items()
        if name.partition("/")[0] in wanted
        for part in binding.parts
    }
    return sum(artifact.objects[name].bytes for name in objects)


def _describe(engine: Any) -> Ready:
    from ninfer_runtime.config import PAGE_TOKENS

    settings = engine.settings
    return Ready(
        settings.lanes, settings.max_context, settings.pages * PAGE_TOKENS,
        settings.prefill_chunk, settings.drafts, settings.vision, str(settings.device),
        str(settings.dtype).removeprefix("torch."), settings.kv_kind,
    )  # fmt: skip


def _explain(error: Exception) -> Report:
    trace = "" if isinstance(error, NinferError) else traceback.format_exc()
    why = str(error) if isinstance(error, NinferError) else _first_line(error)
    return Report((Failed(why, trace, isinstance(error, UsageError)),))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _leave(inbox: Inbox) -> None:
    """The other side is gone: end soon, whatever the engine is doing."""
    inbox.close()
    timer = threading.Timer(_GRACE_SECONDS, os._exit, (FAILED_STATUS,))
    timer.daemon = True
    timer.start()
