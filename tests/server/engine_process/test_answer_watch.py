"""Answers read token by token (SV-14 to SV-17, SV-19)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ninfer_runtime.engine.request import STOP, Step, TokenScore
from ninfer_runtime.server.engine_process.answer_watch import AnswerWatch, Turn
from ninfer_runtime.server.engine_process.messages import WatchedAnswer
from ninfer_runtime.server.requests import Constraint

VOCABULARY = 4096
THOUGHT = "2+ 4 -> 6. So 2+2 = 6.\n</think>\n\nThe beta gamma 😀 end"


def make(tokenizer, matcher=None, **watched):
    return AnswerWatch(WatchedAnswer(**watched), tokenizer, VOCABULARY, matcher)


def feed(watch, tokens, cuts=(), finish=None, scored=False):
    """Read tokens in steps that end at `cuts`; return text, scores and the turn, if any."""
    places = [0, *sorted(set(cuts)), len(tokens)]
    text, scores, turn = "", [], None
    for begin, end in pairwise(places):
        part = tuple(tokens[begin:end])
        numbers = tuple(TokenScore(-0.5, ((t, -0.5),)) for t in part) if scored else ()
        last = finish if end == len(tokens) else None
        reading = watch.read(Step(0, part, 0, last, None, numbers))
        text, turn = text + reading.text, reading.turn
        scores += reading.scores
        if turn is not None:
            return text, scores, turn
    reading = watch.finish()
    return text + reading.text, scores + list(reading.scores), reading.turn


@pytest.mark.parametrize("thinking", [True, False, None])
def test_all_text_comes_out_once_in_any_portions(tokenizer, thinking):
    """SV-14: characters that lie in several tokens too; the reasoning is counted to its mark."""
    text = THOUGHT if thinking else THOUGHT.partition("</think>")[2]
    tokens = tokenizer.encode(text)
    draw = random.Random(3)
    for _ in range(30):
        watch = make(tokenizer, thinking=thinking, stop=("never seen",))
        cuts = [draw.randrange(len(tokens)) for _ in range(draw.randrange(6))]
        got, _, turn = feed(watch, [*tokens, tokenizer.stops[0]], cuts, STOP)
        assert (got, turn, watch.tokens) == (text, None, len(tokens) + 1)
        mark = tokens.index(tokenizer.added["</think>"]) + 1 if thinking else 0
        assert watch.reasoning == mark and not watch.in_reasoning


@pytest.mark.parametrize(
    ("stops", "shown", "found"),
    [
        (("beta gamma",), "The ", "beta gamma"),
        (("gamma", "beta gamma"), "The ", "beta gamma"),
        (("beta", "beta gamma"), "The ", "beta"),
        (("ma 😀",), "The beta gam", "ma 😀"),
        (("\n\nThe",), "", "\n\nThe"),
        ((" So",), None, None),
        (("6", "end"), "The beta gamma 😀 ", "end"),
    ],
)
def test_case_56_a_stop_string_ends_the_answer_at_its_token(tokenizer, stops, shown, found):
    """SV-15: only behind the reasoning; tokens behind it are nobody's."""
    tokens = tokenizer.encode(THOUGHT)
    head = THOUGHT.partition("The")[0]
    draw = random.Random(5)
    for _ in range(30):
        watch = make(tokenizer, thinking=True, stop=stops)
        cuts = [draw.randrange(len(tokens)) for _ in range(draw.randrange(6))]
        text, _, turn = feed(watch, [*tokens, tokenizer.stops[0]], cuts, STOP)
        if found is None:
            assert (text, turn) == (THOUGHT, None)
            continue
        assert isinstance(turn, Turn) and (turn.stop, turn.keep) == (found, watch.tokens)
        kept = tokenizer.decode(tokens[: turn.keep])
        assert found in kept and found not in tokenizer.decode(tokens[: turn.keep - 1])
        assert text == (head + shown if shown else THOUGHT.partition("\n\nThe")[0])


def test_the_limit_closes_the_reasoning_at_its_token(tokenizer):
    """SV-16: a round's tokens behind the limit count for nothing; the close is forced, counted."""
    tokens = tokenizer.encode(THOUGHT)
    close = tuple(tokenizer.encode("\n</think>\n\n"))
    watch = make(tokenizer, thinking=True, limit=5, close=close)
    text, _, turn = feed(watch, tokens)
    assert turn is not None and turn.mask is not None
    assert (turn.keep, watch.tokens, watch.reasoning, watch.closed_at) == (5, 5, 5, 5)
    assert text == tokenizer.decode(tokens[:5])
    for index, token in enumerate(close):
        assert turn.mask([0] * (5 + index)).ne(0).sum() == 1
        reading = watch.read(Step(0, (token,), 0))
        assert (reading.turn is not None) == (index + 1 == len(close))
    assert reading.turn == Turn(5 + len(close)), "the mask goes"
    assert watch.reasoning == 5 + close.index(tokenizer.added["</think>"]) + 1


def test_reasoning_that_ends_in_time_is_not_closed(tokenizer):
    """SV-16: the mark is the last token within the limit."""
    tokens = tokenizer.encode(THOUGHT)
    limit = tokens.index(tokenizer.added["</think>"]) + 1
    watch = make(tokenizer, thinking=True, limit=limit, close=(1,))
    assert feed(watch, tokens)[2] is None and watch.closed_at is None


@pytest.mark.parametrize("spelled", ["</think>", None])
def test_the_grammar_begins_behind_the_reasoning(tokenizer, grammars, spelled):
    """SV-17: behind a blank line, unless the token that ended the reasoning went on itself."""
    matcher = grammars.compile(Constraint("regex", "[0-9]+"))
    watch = make(tokenizer, matcher, thinking=True, constraint=Constraint("regex", "[0-9]+"))
    assert watch.first_mask is None
    encode = tokenizer.encode if spelled else tokenizer.encode_literal
    tokens = [*tokenizer.encode("so "), *encode("</think>"), *tokenizer.encode("\n\nno")]
    _, _, turn = feed(watch, tokens)
    assert turn is not None and turn.mask is not None and turn.stop is None
    kept = tokens[: turn.keep]
    assert tokenizer.decode(kept).startswith("so </think>")
    blank = tokenizer.encode("\n\n")
    forced = blank if tokenizer.decode(kept).endswith(">") else []
    assert turn.mask.forced_until == turn.keep + len(forced)


def test_scores_belong_to_text_that_came_out(tokenizer):
    """SV-19: joined they are the content."""
    tokens = tokenizer.encode(THOUGHT)
    watch = make(tokenizer, thinking=True)
    _, scores, _ = feed(watch, [*tokens, tokenizer.stops[0]], [3, 9, 20], STOP, scored=True)
    assert b"".join(s.data for s in scores).decode() == "The beta gamma 😀 end"
    watch = make(tokenizer, thinking=True, stop=("gamma",))
    _, scores, _ = feed(watch, tokens, [3, 9, 20], scored=True)
    assert b"".join(s.data for s in scores).decode().startswith("The beta")
    assert "gamma" not in b"".join(s.data for s in scores).decode()
    assert all(score.top[0][0] == score.data for score in scores)


def test_an_end_inside_a_character_shows_that_something_was_cut(tokenizer):
    """SV-14."""
    tokens = tokenizer.encode("a😀")
    watch = make(tokenizer, thinking=None)
    text, _, _ = feed(watch, tokens[:-1])
    assert text == "a�"


def test_what_came_out_whole_is_known_to_the_token(tokenizer):
    """SV-15: a later prompt repeats these tokens, and not the one the stop string begins in."""
    tokens = tokenizer.encode(THOUGHT)
    draw = random.Random(9)
    for _ in range(20):
        watch = make(tokenizer, thinking=True, stop=("ma 😀",))
        text, _, turn = feed(watch, tokens, [draw.randrange(len(tokens)) for _ in range(3)])
        whole = tokenizer.decode(tokens[: turn.shown])
        assert text.startswith(whole) and not text.startswith(
            tokenizer.decode(tokens[: turn.shown + 1])
        )
