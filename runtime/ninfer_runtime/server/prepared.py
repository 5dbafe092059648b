"""A request that can be started: nothing of it can be refused any more but for lack of room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ninfer_runtime.engine.request import Sampling
from ninfer_runtime.frontend.media import Medium
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet
from ninfer_runtime.server.engine_process.messages import PromptMedia, WatchedAnswer
from ninfer_runtime.server.requests import ThinkingFields


@dataclass(frozen=True)
class Prepared:
    """`thinking` is what is done: whether the answer begins in the reasoning, the effort, and the
    limit of its tokens. `asked_tokens` is the limit that was asked for, above `max_tokens` where
    the context had less room. `tools` is None where nothing is looked for in the text. `began` is
    `time.monotonic()` when the request came."""

    ids: tuple[int, ...]
    thinking: ThinkingFields
    max_tokens: int
    asked_tokens: int | None
    sampling: Sampling
    stops: tuple[int, ...]
    watch: WatchedAnswer
    logprobs: int | None
    choices: int
    boundaries: tuple[int, ...]
    tools: ToolSet | None
    parallel_calls: bool
    began: float
    tokenizer: Tokenizer
    media: PromptMedia | None = None
    pictures: tuple[Medium, ...] = ()

    @property
    def text(self) -> str:
        """The prompt as text, with a token for every row of its media."""
        return self.tokenizer.decode(self.ids)

    @property
    def prompt(self) -> np.ndarray:
        """The prompt int32 [tokens]."""
        return np.array(self.ids, dtype=np.int32)
