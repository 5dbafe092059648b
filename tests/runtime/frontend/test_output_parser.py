"""Laws of splitting reasoning from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_runtime.frontend.output_parser import OutputParser

PIECES = ["<think>", "</think>", "</thi", "<", "/", "think>", " ", "\n", "a", "word", "<thin"]


def split(text: str, thinking: bool, portion: int | None = None) -> tuple[str, str]:
    parser = OutputParser(thinking)
    size = portion or max(len(text), 1)
    pieces = [parser.push(text[i : i + size]) for i in range(0, len(text), size)]
    pieces.append(parser.finish())
    return "".join(p.reasoning for p in pieces), "".join(p.answer for p in pieces)


def definition(text: str, thinking: bool) -> tuple[str, str]:
    if not thinking:
        if not text.lstrip().startswith("<think>"):
            return "", text
        text = text.lstrip().removeprefix("<think>")
    reasoning, mark, answer = text.partition("</think>")
    return reasoning.strip(), answer.lstrip() if mark else ""


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.booleans(), st.integers(1, 5))
def test_streamed_pieces_equal_the_whole_text(text, thinking, portion):
    """FE-20"""
    assert split(text, thinking, portion) == definition(text, thinking)


@pytest.mark.parametrize(
    ("text", "thinking", "reasoning", "answer"),
    [
        ("so\n</think>\n\nYes.", True, "so", "Yes."),
        ("cut off", True, "cut off", ""),
        ("</think>\n\nYes", True, "", "Yes"),
        ("Yes.\n", False, "", "Yes.\n"),
        ("<think>\nwell\n</think>\n\nNo", False, "well", "No"),
        ("about </think> marks", False, "", "about </think> marks"),
        ("a</think>b</think>c", True, "a", "b</think>c"),
    ],
)
def test_both_sides(text, thinking, reasoning, answer):
    """FE-20"""
    assert split(text, thinking) == (reasoning, answer)


def test_text_that_cannot_be_a_mark_is_not_held():
    parser = OutputParser(True)
    assert parser.push("so a < b").reasoning == "so a < b"
    assert parser.push(" </th").reasoning == ""
    assert parser.push("ree").reasoning == " </three"
    assert parser.in_reasoning
    assert parser.push("</think>yes").answer == "yes"
    assert not parser.in_reasoning
