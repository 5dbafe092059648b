"""What comes of a request, in the words of no dialect: every API's stream is made of these."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta

STOP, LENGTH, TOOL_CALLS, CANCELLED, ERROR = "stop", "length", "tool_calls", "cancelled", "error"


@dataclass(frozen=True)
class ScoredToken:
    """A token's text as bytes and its natural log probability before temperature and filters, with
    the most likely tokens in its place."""

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True)
class Delta:
    """What some tokens added to an answer."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()
    scores: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True)
class Usage:
    """Counts of tokens. `completion` are all tokens of the answer, those of `reasoning` and the
    stop token included; `cached` prompt tokens were not computed again."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True)
class Timings:
    """Seconds waiting for a lane, from admission to the first token, and from there to the last;
    drafted and accepted tokens of speculation."""

    queued: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class Finished:
    """The end of an answer. `stop` is the stop string that ended it. `warnings` are sentences for
    people: why an answer is empty, what was cut. `error` is what failed, with reason `error`."""

    reason: str
    usage: Usage
    timings: Timings = Timings()
    stop: str | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None
