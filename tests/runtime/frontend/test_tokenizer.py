"""Laws of tokens and text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.byte_level import spelling_bytes
from ninfer_runtime.frontend.text_stream import TextStream
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_tools.synthetic.frontend import build_frontend

TEXTS = [
    "",
    "hello",
    "  two spaces\n\n\tand tabs ",
    "naïve cafe\u0301 日本語 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<|im_start|>user\n<think>x</think><|im_end|>",
    "def f(x):\n    return x ** 2  # 12345",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_transformers(tokenizer, oracle_tokenizer, text):
    """FE-1"""
    assert tokenizer.encode(text) == oracle_tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
def test_decoding_gives_the_normalised_text_back(tokenizer, oracle_tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == oracle_tokenizer.decode(ids)


def test_literal_text_has_no_added_token_and_decodes_to_itself(tokenizer):
    """FE-2"""
    text = "a <|im_end|>\n<|im_start|>system <think>"
    ids = tokenizer.encode_literal(text)
    assert not set(ids) & set(tokenizer.added.values())
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_literal("plain words") == tokenizer.encode("plain words")


@given(st.lists(st.integers(0, 4200), max_size=40), st.integers(1, 7), st.booleans())
def test_streamed_text_equals_the_text_of_all_ids(tokenizer, ids, portion, skip):
    """FE-3"""
    stream = TextStream(tokenizer, skip_special=skip)
    parts = [stream.push(ids[i : i + portion]) for i in range(0, len(ids), portion)]
    assert "".join(parts) + stream.finish() == tokenizer.decode(ids, skip_special=skip)


@given(st.lists(st.integers(0, 4051), max_size=40))
def test_any_ids_decode_as_the_tokenizers_library_does(tokenizer, oracle_tokenizer, ids):
    assert tokenizer.decode(ids) == oracle_tokenizer.backend_tokenizer.decode(
        ids, skip_special_tokens=False
    )


def test_a_character_in_pieces_is_shown_only_when_complete(tokenizer):
    ids = tokenizer.encode("\U0001f9ff")
    assert len(ids) > 1
    stream = TextStream(tokenizer)
    assert [stream.push([id]) for id in ids] == [""] * (len(ids) - 1) + ["\U0001f9ff"]


def test_an_unfinished_character_becomes_a_replacement_at_the_end(tokenizer):
    stream = TextStream(tokenizer)
    assert stream.push(tokenizer.encode("\U0001f9ff")[:1]) == ""
    assert stream.finish() == "\ufffd"


def test_special_tokens_are_left_out_and_added_ones_stay(tokenizer):
    ids = tokenizer.encode("a<think>b<|im_end|>")
    assert tokenizer.decode(ids, skip_special=True) == "a<think>b"


def test_lone_surrogates_become_replacement_characters(tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("\ud83e\uddff")) == "\U0001f9ff"


def test_stop_ids_come_from_the_generation_config(tokenizer):
    """FE-4"""
    assert tokenizer.stops == (tokenizer.added["<|im_end|>"], tokenizer.added["<|endoftext|>"])


def small_files() -> dict[str, str]:
    return {role: data.decode() for role, data in build_frontend(400).items()}


def test_a_single_stop_id_and_an_absent_one_count():
    text = small_files()["tokenizer.json"]
    assert Tokenizer(text, {}, {"eos_token_id": 5}).stops == (5,)
    tokenizer = Tokenizer(text, {}, {})
    names = ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.stops == tuple(tokenizer.added[name] for name in names)


def test_tokens_that_only_the_config_has_are_added_under_their_ids():
    """FE-1"""
    files = small_files()
    described = json.loads(files["tokenizer.json"])
    config = json.loads(files["tokenizer_config.json"])
    whole = Tokenizer(files["tokenizer.json"], config, {})
    described["added_tokens"] = described["added_tokens"][:-7]
    cut = Tokenizer(json.dumps(described), config, {})
    assert (cut.added, cut.special, cut.size) == (whole.added, whole.special, 400)


def test_an_added_token_whose_id_does_not_fit_is_refused():
    config = {"added_tokens_decoder": {"900": {"content": "<|late|>"}}}
    with pytest.raises(StartupError, match=r"has another id \(got 400, want 900\)"):
        Tokenizer(small_files()["tokenizer.json"], config, {})


@pytest.mark.parametrize("text", ["", "{}", "[1", '{"model": {"type": "BPE"}}'])
def test_a_broken_tokenizer_is_one_error(text):
    with pytest.raises(StartupError, match="tokenizer"):
        Tokenizer(text, {}, {})


def test_stop_ids_that_are_no_ids_are_refused():
    with pytest.raises(StartupError, match="eos_token_id"):
        Tokenizer(small_files()["tokenizer.json"], {}, {"eos_token_id": ["x"]})


def test_the_alphabet_spells_every_byte_once():
    table = spelling_bytes()
    assert sorted(table.values()) == list(range(256))
    assert (table["a"], table["Ġ"], table["Ċ"], table["ÿ"]) == (97, 32, 10, 255)
