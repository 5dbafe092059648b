"""How long an answer may think (SV-16)."""

from __future__ import annotations

import pytest

from ninfer_runtime.server.thinking_limit import ThinkingLimit, limit_thinking

LONG, SHORT = tuple(range(24)), (1, 2, 3)


@pytest.mark.parametrize(
    ("max_tokens", "budget", "reserve", "tokens", "close"),
    [
        (4096, None, 512, 4096 - 512 - 24, LONG),
        (4096, 100, 512, 100, LONG),
        (1024, None, 512, 1024 - 256 - 24, LONG),
        (64, None, 512, 64 - 16 - 24, LONG),
        (63, None, 512, None, ()),
        (63, 10, 512, 10, LONG),
        (63, 60, 512, 39, LONG),
        (4096, None, 0, None, ()),
        (4096, 5000, 0, 4096 - 24, LONG),
        (4096, None, 10**9, 4096 - 1024 - 24, LONG),
        (20, 10, 512, 10, SHORT),
        (4, 10, 512, 1, SHORT),
        (3, 10, 512, None, ()),
        (10**6, 10**7, 512, 10**6 - 512 - 24, LONG),
    ],
)
def test_the_answer_and_the_close_keep_their_room(max_tokens, budget, reserve, tokens, close):
    """SV-16: exact to the token; the short close where the long one leaves nothing to think."""
    found = limit_thinking(max_tokens, budget, reserve, (LONG, SHORT))
    assert found == ThinkingLimit(tokens, close)
    if tokens is not None and max_tokens >= 64:
        assert max_tokens - tokens - len(close) >= min(reserve, max_tokens // 4)


def test_a_close_of_the_operator_may_be_longer_than_the_answer():
    """SV-16."""
    assert limit_thinking(100, None, 512, (range(90), SHORT)) == ThinkingLimit(72, SHORT)
