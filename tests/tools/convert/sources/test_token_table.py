"""Token ids of both tokenizer files: S-33 to S-35."""

from __future__ import annotations

import json

import pytest

from builders.checkpoints import TOKENS, VOCAB_ROWS, build_checkpoint
from ninfer_tools.convert.sources.token_table import read_token_table

PATHS = {name: f"x/{name}" for name in ("tokenizer.json", "tokenizer_config.json")}


def files(vocab, added=(), decoder=None):
    tokens = [{"id": i, "content": text, "special": special} for i, text, special in added]
    found = {"tokenizer.json": {"model": {"vocab": vocab}, "added_tokens": tokens}}
    if decoder is not None:
        table = {str(i): {"content": t, "special": s} for i, (t, s) in decoder.items()}
        found["tokenizer_config.json"] = {"added_tokens_decoder": table}
    return {name: json.dumps(value).encode() for name, value in found.items()}


def problems(resources, rows=10):
    return [str(p) for p in read_token_table(resources, PATHS, rows).problems]


def test_tokens_of_both_files_are_joined():
    """S-34, S-35: the config alone holds some tokens, and either may call one special."""
    table = read_token_table(
        files({"a": 0, "b": 1}, [(2, "<x>", False)], {2: ("<x>", True), 3: ("<y>", True)}), PATHS, 4
    )
    assert table.tokens == {0: "a", 1: "b", 2: "<x>", 3: "<y>"}
    assert table.special == {2, 3} and table.count == 4 and not table.problems


def test_official_files_are_whole():
    """S-35."""
    table = read_token_table(build_checkpoint().resources, PATHS, VOCAB_ROWS)
    assert not table.problems
    assert sorted(table.tokens) == list(range(TOKENS)) and table.count == TOKENS


@pytest.mark.parametrize(
    "resources",
    [
        files({"a": 10}),
        files({"a": -1}),
        files({}, [(10, "a", True)]),
        files({}, (), {10: ("a", True)}),
    ],
)
def test_ids_stay_below_the_vocabulary_rows(resources):
    """S-33."""
    (text,) = problems(resources)
    assert "exceed the vocabulary rows" in text and "0 to 9" in text and "(a)" in text


def test_ids_past_the_embedding_are_refused_before_work(check):
    """S-33."""
    tiny = build_checkpoint()
    tokenizer = json.loads(tiny.resources["tokenizer.json"])
    tokenizer["added_tokens"].append({"id": VOCAB_ROWS, "content": "<new>", "special": False})
    tiny.resources["tokenizer.json"] = json.dumps(tokenizer).encode()
    (problem,) = check(tiny).problems
    assert f"{VOCAB_ROWS} (<new>)" in str(problem)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (files({"a": 1}, (), {1: ("b", False)}), "1 is a in tokenizer.json and b in"),
        (files({"a": 1}, (), {2: ("a", False)}), "a is 1 in tokenizer.json and 2 in"),
        (files({"a": 1, "b": 1}), "two tokens"),
        (files({"a": 1}, [(1, "b", True)]), "1 (a and b)"),
    ],
)
def test_one_id_is_one_token_everywhere(resources, expected):
    """S-34."""
    (text,) = problems(resources)
    assert expected in text


@pytest.mark.parametrize(
    "resources",
    [
        {"tokenizer.json": b"{}"},
        {"tokenizer.json": b'{"model": {"vocab": [["a", 0]]}}'},
        {"tokenizer.json": b'{"model": {"vocab": {"a": "0"}}}'},
        {"tokenizer.json": b'{"model": {"vocab": {}}, "added_tokens": [1]}'},
        {"tokenizer.json": b'{"model": {"vocab": {}}, "added_tokens": [{"id": true}]}'},
        {"tokenizer_config.json": b'{"added_tokens_decoder": [1]}'},
        {"tokenizer_config.json": b'{"added_tokens_decoder": {"x": {"content": "a"}}}'},
        {"tokenizer_config.json": b'{"added_tokens_decoder": {"1": 5}}'},
    ],
)
def test_ill_formed_tables_are_refused_with_their_file(resources):
    """S-34."""
    (text,) = problems(resources)
    assert f"x/{next(iter(resources))}" in text
