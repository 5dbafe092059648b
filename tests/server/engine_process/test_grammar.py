"""Sets of tokens that may come next (SV-17, SV-18)."""

from __future__ import annotations

import json

import pytest
import torch

from ninfer_runtime.errors import RequestError
from ninfer_runtime.server.engine_process.grammar import MAX_TEXT, AnswerMask, Grammars
from ninfer_runtime.server.requests import Constraint

SCHEMA = json.dumps(
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
     "additionalProperties": False}
)  # fmt: skip


def allowed(words: torch.Tensor) -> set[int]:
    bits = (words[:, None] >> torch.arange(32)) & 1
    return set(bits.flatten().nonzero().flatten().tolist())


def accepts(grammars: Grammars, tokenizer, constraint: Constraint, text: str) -> bool:
    """Return whether every token of a text, and then the end, may come."""
    matcher = grammars.compile(constraint)
    for token in tokenizer.encode(text):
        if token not in allowed(matcher.mask()):
            return False
        matcher.consume((token,))
    return tokenizer.stops[0] in allowed(matcher.mask())


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (Constraint("json_schema", SCHEMA), '{"a": 12}', '{"a": "12"}'),
        (Constraint("json_schema", SCHEMA), '{\n  "a": -1\n}', '{"a": 1, "b": 2}'),
        (Constraint("json_object"), '{"x": [1, {"y": "é\\n"}]}', "[1]"),
        (Constraint("regex", "(yes|no)"), "yes", "maybe"),
        (Constraint("regex", r"\d{3}-é+"), "123-éé", "12-é"),
        (Constraint("gbnf", 'root ::= "a" [0-9]+'), "a42", "a"),
        (Constraint("lark", 'start: "<tool_call>" /[a-z]+/'), "<tool_call>f", "tool_call"),
    ],
)
def test_a_constraint_lets_through_what_matches_it(grammars, tokenizer, constraint, good, bad):
    """SV-17: with the model's own tokens, special ones never among them."""
    assert accepts(grammars, tokenizer, constraint, good)
    assert not accepts(grammars, tokenizer, constraint, bad)
    free = allowed(grammars.compile(constraint).mask())
    assert not free & (tokenizer.special - set(tokenizer.stops))
    assert max(free) < tokenizer.size


def test_blank_space_in_json_is_bounded(grammars, tokenizer):
    """SV-17: an answer cannot be blanks until its limit."""
    blanks = '{"a"' + " " * 40 + ": 1}"
    assert not accepts(grammars, tokenizer, Constraint("json_schema", SCHEMA), blanks)
    lines = '{\n\n\n"a": 1}'
    assert not accepts(grammars, tokenizer, Constraint("json_schema", SCHEMA), lines)


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint("json_schema", '{"type": "banana"}'), "schema cannot be used.*banana"),
        (Constraint("json_schema", "{"), "schema cannot be used"),
        (Constraint("json_schema", "[" * 100000), "schema cannot be used"),
        (Constraint("json_schema", '{"unevaluatedItems": false}'), "unevaluatedItems"),
        (Constraint("json_schema", '{"$ref": "http://a/b"}'), "schema cannot be used"),
        (Constraint("regex", "(a"), "regular expression cannot be used.*unclosed"),
        (Constraint("regex", "(?=a)b"), "look-around"),
        (Constraint("regex", "(a{1000}){1000}"), "regular expression cannot be used"),
        (Constraint("lark", "start: nope"), "grammar cannot be used.*nope"),
        (Constraint("gbnf", "foo bar"), "grammar cannot be used"),
        (Constraint("xml", ""), "unknown kind"),
        (Constraint("regex", "a" * (MAX_TEXT + 1)), "too long"),
    ],
)
def test_what_is_no_constraint_is_refused_in_one_line(grammars, constraint, reason):
    """SV-18."""
    with pytest.raises(RequestError, match=reason) as caught:
        grammars.compile(constraint)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_forced_tokens_come_before_the_grammar(grammars, tokenizer):
    """SV-17: counted from where the mask begins."""
    matcher = grammars.compile(Constraint("regex", "yes"))
    mask = AnswerMask(2, (5, 6), matcher, grammars.vocabulary)
    assert allowed(mask((1, 2))) == {5}
    assert allowed(mask((1, 2, 5))) == {6}
    first = allowed(mask((1, 2, 5, 6)))
    assert first == allowed(mask((1, 2, 5, 6))), "asking twice changes it"
    yes = tokenizer.encode("yes")
    assert yes[0] in first
    assert allowed(mask((1, 2, 5, 6, *yes))) == set(tokenizer.stops)
    with pytest.raises(RequestError, match="left its grammar"):
        mask((1, 2, 5, 6, *yes, 3))
