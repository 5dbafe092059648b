"""What the HTTP process and the engine process tell each other: pickled, one way each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ninfer_runtime.engine.request import Sampling
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.prefix.reuse import Reuse
from ninfer_runtime.server.events import ScoredToken, Timings
from ninfer_runtime.server.requests import Constraint

# To the engine process.


@dataclass(frozen=True)
class WatchedAnswer:
    """What is looked for in an answer while it comes.

    `thinking`: whether it begins inside a think block; None where such marks mean nothing and all
    text is answer. After `limit` tokens of reasoning (None: never) the tokens of `close` follow.
    `stop` are strings that end the answer; `constraint` is what it must match.
    """

    thinking: bool | None = None
    limit: int | None = None
    close: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    constraint: Constraint | None = None


@dataclass(frozen=True)
class MediumPlace:
    """One image or video of a prompt: `digest` names its patches and grid; its tokens lie in
    prompt[begin:end], of a video with text between them."""

    digest: bytes
    grid: PatchGrid
    begin: int
    end: int


@dataclass(frozen=True)
class PromptMedia:
    """`places` int64 [n] are the indices of media tokens, `positions` int32 [3, tokens] the rotary
    positions of the whole prompt. The patches follow when they are asked for (`WantPatches`)."""

    items: tuple[MediumPlace, ...]
    places: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True)
class Submit:
    """A request under the number `key`. `prompt` int32 [tokens]; the engine keeps snapshots where
    `boundaries`, token indices, say. `submitted` is `time.monotonic()`, one clock for all
    processes of a machine."""

    key: int
    prompt: np.ndarray
    max_tokens: int
    sampling: Sampling
    stops: tuple[int, ...]
    watch: WatchedAnswer
    logprobs: int | None = None
    media: PromptMedia | None = None
    boundaries: tuple[int, ...] = ()
    submitted: float = 0.0


@dataclass(frozen=True)
class Patches:
    """The patches fp32 of medium `item` of a request."""

    key: int
    item: int
    patches: np.ndarray


@dataclass(frozen=True)
class Cancel:
    key: int


@dataclass(frozen=True)
class Stop:
    """Finish what was submitted within `limit` seconds, cancel the rest, and end."""

    limit: float


# From the engine process.


@dataclass(frozen=True)
class Loading:
    """Bytes of weights read, of how many."""

    done: int
    total: int


@dataclass(frozen=True)
class Ready:
    """The engine waits for requests; what it runs with."""

    lanes: int
    max_context: int
    kv_tokens: int
    prefill_chunk: int
    drafts: int
    vision: bool
    device: str
    dtype: str
    kv_kind: str


@dataclass(frozen=True)
class Failed:
    """The engine is gone, the process ends. `trace` is for the log; `usage` says whether the fault
    is in what was asked for at the start."""

    why: str
    trace: str = ""
    usage: bool = False


@dataclass(frozen=True)
class WantPatches:
    key: int
    item: int


@dataclass(frozen=True)
class Admitted:
    """A request has a lane."""

    key: int
    lane: int
    queued: float
    reuse: Reuse = field(default_factory=Reuse)


@dataclass(frozen=True)
class Prefilled:
    """Prompt tokens whose state is computed."""

    key: int
    tokens: int


@dataclass(frozen=True)
class Said:
    """What one step added: text, with markup; tokens so far, of them of the reasoning."""

    key: int
    text: str
    tokens: int
    reasoning: int
    scores: tuple[ScoredToken, ...] = ()


@dataclass(frozen=True)
class Ended:
    """The end of a request, as `Finished`. `open_reasoning`: it ended inside the reasoning.
    `closed_at` counts the tokens of the reasoning when it was closed early. `refused`: it was
    never taken."""

    key: int
    reason: str
    tokens: int = 0
    reasoning: int = 0
    timings: Timings = field(default_factory=Timings)
    stop: str | None = None
    error: str | None = None
    open_reasoning: bool = False
    closed_at: int | None = None
    refused: bool = False


@dataclass(frozen=True)
class Gauges:
    """How full the engine is, and how many rounds it ran, with how many lanes in all; `prefix` are
    counts and gauges of prefix reuse by name."""

    lanes_free: int = 0
    pages_free: int = 0
    pages: int = 0
    waiting: int = 0
    rounds: int = 0
    lane_rounds: int = 0
    prefix: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything one turn has to say, in order."""

    messages: tuple[object, ...]
    gauges: Gauges = field(default_factory=Gauges)
