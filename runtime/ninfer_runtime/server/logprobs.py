"""Log probabilities in the two forms of the OpenAI API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ninfer_runtime.server.events import ScoredToken

# JSON has no infinity; this is what the API writes for impossible tokens.
_IMPOSSIBLE = -9999.0


def write_chat_scores(scores: Iterable[ScoredToken]) -> dict[str, Any]:
    """Return the `logprobs` object of a chat choice."""
    content = [
        {
            **_write_token(score.data, score.logprob),
            "top_logprobs": [_write_token(data, value) for data, value in score.top],
        }
        for score in scores
    ]
    return {"content": content, "refusal": None}


def write_text_scores(scores: Iterable[ScoredToken], offset: int) -> dict[str, Any]:
    """Return the `logprobs` object of a text choice; the first token begins at `offset`."""
    tokens, values, tops, offsets = [], [], [], []
    for score in scores:
        text = _spell(score.data)
        tokens.append(text)
        values.append(_bound(score.logprob))
        tops.append({_spell(data): _bound(value) for data, value in score.top})
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets,
    }  # fmt: skip


def _write_token(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": _spell(data), "logprob": _bound(logprob), "bytes": list(data)}


def _spell(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _bound(logprob: float) -> float:
    return max(logprob, _IMPOSSIBLE) if logprob == logprob else _IMPOSSIBLE
