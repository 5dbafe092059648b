"""What a caller asks for, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; `temperature` 0 is greedy. Neutral: top_k 0, top_p 1, min_p 0,
    repetition 1, presence and frequency 0. `bias` is added to the logits of token ids."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    seed: int = 0
    bias: Mapping[int, float] = field(default_factory=dict)

    @property
    def wide(self) -> bool:
        """Whether more than the first 64 candidates can be drawn."""
        return self.temperature > 0 and not 1 <= self.top_k <= 64

    @property
    def penalised(self) -> bool:
        neutral = (self.repetition, self.presence, self.frequency) == (1.0, 0.0, 0.0)
        return not neutral or bool(self.bias)


@dataclass(frozen=True)
class MediaSpan:
    """One image or video lies in prompt[begin:end]; `digest` names its patches and grid."""

    digest: bytes
    begin: int
    end: int


@dataclass(frozen=True)
class Media:
    """Embeddings that stand in for the prompt's media tokens.

    `rows` [n, H] in the order of the places `places` int64 [n] in the prompt; `positions` int32
    [3, tokens] are the rotary positions of the whole prompt. A prompt whose media have no `spans`
    neither goes on from an earlier one nor is kept for later ones.
    """

    rows: torch.Tensor
    places: torch.Tensor
    positions: torch.Tensor
    spans: tuple[MediaSpan, ...] = ()


Mask = Callable[[tuple[int, ...]], torch.Tensor]


@dataclass(frozen=True)
class Request:
    """A tokenised prompt. `stops` are ids that end the answer; `logprobs` is how many of the most
    likely tokens are wanted beside each, None for none at all.

    `mask`, given the tokens emitted so far, returns the tokens that may come next: int32
    [ceil(V / 32)] on the CPU, bit t mod 32 of word t div 32 allows token t. It is called once for
    every token, and the request's rounds have one column each.

    A `held` request that ends with STOP or LENGTH keeps its lane until `Engine.truncate` or
    `Engine.cancel` lets it go, or `Engine.rewind` takes it back to where it goes on.

    With prefix reuse the state is kept where `boundaries`, ascending indices of the prompt, say;
    the last is that of the answer's opener, others end what several prompts begin with.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    stops: tuple[int, ...] = ()
    media: Media | None = None
    logprobs: int | None = None
    mask: Mask | None = None
    held: bool = False
    boundaries: tuple[int, ...] = ()


STOP, LENGTH, ERROR, CANCELLED = "stop", "length", "error", "cancelled"


@dataclass(frozen=True)
class TokenScore:
    """Log probability of a token before temperature and filters, and of the most likely ones."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Step:
    """Tokens of one request from one round; `finish` is STOP, LENGTH, ERROR or CANCELLED in its
    last step. The stop id is the last token of a step that finishes with STOP."""

    number: int
    tokens: tuple[int, ...]
    drafted: int
    finish: str | None = None
    error: str | None = None
    scores: tuple[TokenScore, ...] = ()
