"""What a request must be before it gets a number: rules EN-8 and EN-9."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ninfer_kernels.sampling.parameters import CANDIDATES
from ninfer_runtime.config import Settings
from ninfer_runtime.engine.lanes import MAX_BIAS, MAX_STOP_IDS
from ninfer_runtime.engine.ranges import INTEGERS, SAMPLING_RANGES, in_range
from ninfer_runtime.engine.request import Media, Request, Sampling
from ninfer_runtime.errors import RequestError
from ninfer_runtime.models.qwen3_5.model import Model


def check_request(request: Request, settings: Settings, model: Model) -> int:
    """Return how many tokens the answer may have; RequestError, one line, for what cannot run."""
    text = model.geometry.text
    room = _check_length(request, settings.max_context)
    _check_ids((*request.prompt, *request.stops, *request.sampling.bias), text.vocab_size)
    if not _is_integer(request.max_tokens) or request.max_tokens < 1:
        raise RequestError(
            "no tokens are asked for", got=request.max_tokens, want="an integer from 1"
        )
    if len(request.stops) > MAX_STOP_IDS:
        raise RequestError("too many stop ids", got=len(request.stops), want=MAX_STOP_IDS)
    wanted = request.logprobs
    if wanted is not None and not (_is_integer(wanted) and 0 <= wanted <= CANDIDATES):
        raise RequestError(
            "log probabilities of that many tokens are not kept",
            got=wanted, want=f"0 to {CANDIDATES}",
        )  # fmt: skip
    _check_sampling(request.sampling)
    if request.mask is not None and not callable(request.mask):
        raise RequestError(
            "the mask cannot be called", got=type(request.mask).__name__,
            want="a function of the tokens emitted so far",
        )  # fmt: skip
    if request.media is not None:
        _check_media(request.media, len(request.prompt), text.hidden_size)
    return min(request.max_tokens, room)


def _check_length(request: Request, context: int) -> int:
    if not isinstance(request.prompt, tuple | list):
        raise RequestError(
            "the prompt is not a tuple of token ids", got=type(request.prompt).__name__,
            want="a tuple",
        )  # fmt: skip
    if not request.prompt:
        raise RequestError("the prompt is empty", got="no tokens", want="at least one")
    require_room(len(request.prompt), context)
    return context - len(request.prompt)


def require_room(tokens: int, context: int) -> None:
    """Raise RequestError unless a prompt of so many tokens leaves room for one more."""
    if tokens >= context:
        raise RequestError(
            "the prompt is longer than the context", got=f"{tokens} tokens",
            want=f"at most {context - 1}",
            remedy="shorten it, or start with a larger --max-context",
        )  # fmt: skip


def _check_ids(ids: Iterable[object], vocabulary: int) -> None:
    for id in ids:
        if not _is_integer(id) or not 0 <= id < vocabulary:  # type: ignore[operator]
            raise RequestError("unknown token id", got=id, want=f"0 to {vocabulary - 1}")


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _check_sampling(sampling: Sampling) -> None:
    for field, (low, high) in SAMPLING_RANGES.items():
        value = getattr(sampling, field)
        if not in_range(field, value):
            kind = "an integer " if field in INTEGERS else ""
            raise RequestError(
                f"{field} is out of range", got=value, want=f"{kind}from {low} to {high}"
            )
    if len(sampling.bias) > MAX_BIAS:
        raise RequestError("too many biases", got=len(sampling.bias), want=MAX_BIAS)
    for id, value in sampling.bias.items():
        known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known or math.isnan(value) or value == math.inf:
            raise RequestError(
                f"the bias of token {id} is out of range", got=value,
                want="a finite number, or -inf to forbid the token",
            )  # fmt: skip


def _check_media(media: Media, tokens: int, hidden: int) -> None:
    places, rows = media.places, media.rows
    fits = places.dim() == 1 and tuple(rows.shape) == (places.numel(), hidden)
    inside = bool(((places >= 0) & (places < tokens)).all()) if fits else False
    if not inside or tuple(media.positions.shape) != (3, tokens):
        raise RequestError(
            "media do not belong to this prompt",
            got=f"rows {list(rows.shape)}, places {list(places.shape)}, "
            f"positions {list(media.positions.shape)}",
            want=f"rows [n, {hidden}], places [n] below {tokens}, positions [3, {tokens}]",
        )
