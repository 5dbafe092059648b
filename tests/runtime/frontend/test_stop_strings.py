"""Laws of stop strings: nothing of one comes out, and pieces do not matter."""

from __future__ import annotations

import random

import pytest

from ninfer_runtime.frontend.stop_strings import StopStrings


def feed(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    text = "".join(map(matcher.push, pieces))
    return text + matcher.finish(), matcher.found


@pytest.mark.parametrize(
    ("stops", "text", "want", "found"),
    [
        (("beta gamma",), "alpha beta gamma delta", "alpha ", "beta gamma"),
        (("\n\n",), "a\n\nb", "a", "\n\n"),
        (("ab", "abc"), "xabcd", "x", "ab"),
        (("bc", "abc"), "xabcd", "x", "abc"),
        (("aab",), "aaab!", "a", "aab"),
        (("never",), "nev", "nev", None),
        ((), "all of it", "all of it", None),
        (("🧿!",), "look 🧿!", "look ", "🧿!"),
    ],
)
def test_case_56_the_text_ends_before_the_stop_string_that_is_complete_first(
    stops, text, want, found
):
    """FE-21: of two that end together the longer one counts; in whatever pieces it comes."""
    assert feed(stops, list(text)) == (want, found)
    cuts = random.Random(text)
    for _ in range(20):
        pieces, rest = [], text
        while rest:
            size = cuts.randint(1, len(rest))
            pieces.append(rest[:size])
            rest = rest[size:]
        assert feed(stops, pieces) == (want, found)


def test_case_56_only_a_possible_beginning_is_held():
    """FE-22"""
    matcher = StopStrings(("beta gamma",))
    assert matcher.push("alpha be") == "alpha "
    assert matcher.push("t") == ""
    assert matcher.push("ter") == "better"
    assert (matcher.push("beta"), matcher.finish()) == ("", "beta")
