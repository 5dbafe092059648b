"""Where the reasoning ends (SV-14)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ninfer_runtime.frontend.output_parser import OutputParser
from ninfer_runtime.server.engine_process.reasoning_mark import ReasoningMark

TEXTS = [
    "so it is.\n</think>\n\nSix", "</think>six", "no end", "a </thin b</think></think>c", "",
    "<think>\na\n</think>b", "  <think>a</think>b", "<thinking> is hard", "<", "  ", "x<think>y",
    "<think>", "<think></think>",
]  # fmt: skip


def split(text: str, thinking: bool | None, cuts: list[int]) -> tuple[str, str]:
    mark = ReasoningMark(thinking)
    places = [0, *sorted(cuts), len(text)]
    pieces = [mark.push(text[a:b]) for a, b in pairwise(places)]
    return "".join(p[0] for p in pieces), "".join(p[1] for p in pieces) + mark.finish()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("thinking", [True, False])
def test_the_answer_is_what_the_parser_of_answers_calls_so(text, thinking):
    """SV-14: to the character, but for blank space beside the mark, in any portions."""
    parser = OutputParser(thinking)
    first, last = parser.push(text), parser.finish()
    want = first.answer + last.answer
    draw = random.Random(7)
    for _ in range(50):
        cuts = [draw.randint(0, len(text)) for _ in range(draw.randint(0, 6))]
        outside, answer = split(text, thinking, cuts)
        assert outside + answer == text
        assert answer.lstrip() == want.lstrip()


@pytest.mark.parametrize("text", TEXTS)
def test_raw_text_is_all_answer(text):
    """SV-14."""
    assert split(text, None, [1, 3] if len(text) > 3 else []) == ("", text)


def test_a_beginning_that_is_decided_is_not_held():
    """SV-14."""
    mark = ReasoningMark(False)
    assert mark.push("<th") == ("", "")
    assert mark.push("e") == ("", "<the")
    assert mark.behind and not mark.inside
