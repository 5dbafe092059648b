"""The text of a calibration, cut and tokenised."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from builders.checkpoints import TOKENS, VOCAB_ROWS
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.calibration import text as texts
from ninfer_tools.convert.calibration.text import check_text, read_text
from ninfer_tools.synthetic.frontend import build_frontend

TOKENIZER = build_frontend(TOKENS)["tokenizer.json"]


def read(path, limit=1 << 20):
    return read_text(path, TOKENIZER, limit, VOCAB_ROWS)


def write(tmp_path, content):
    path = tmp_path / "t.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path):
    with pytest.raises(UsageError) as caught:
        read(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value)


def test_ids_are_those_of_the_tokenizer(tmp_path):
    """V-101: special tokens are not added; their text is the token."""
    content = "Grüße aus <|im_start|>hier\n"
    want = Tokenizer.from_str(TOKENIZER.decode()).encode(content, add_special_tokens=False).ids
    found = read(write(tmp_path, content))
    assert found.ids.tolist() == want
    marker = Tokenizer.from_str(TOKENIZER.decode()).token_to_id("<|im_start|>")
    assert want.count(marker) == 1
    assert found.bytes == len(content.encode())
    assert found.sha256 == hashlib.sha256(content.encode()).hexdigest()


def test_chunks_hold_512_tokens_and_the_last_the_rest(tmp_path):
    """V-101."""
    found = read(write(tmp_path, "a1b2 " * 500), 1100)
    assert [len(chunk) for chunk in found.chunks] == [512, 512, 76]
    np.testing.assert_array_equal(np.concatenate(found.chunks), found.ids)


def test_no_more_is_read_than_the_tokens_need(tmp_path, monkeypatch):
    """V-101: what follows the first pieces may be anything."""
    path = write(tmp_path, b"one two\n" * 10_000 + b"\xff" * 200_000)
    found = read(path, 100)
    assert len(found.ids) == 100
    assert found.bytes == 65536
    # 65,536 bytes are 8,192 whole lines.
    assert found.sha256 == hashlib.sha256(b"one two\n" * 8192).hexdigest()


@pytest.mark.parametrize(
    ("content", "cut"),
    [("ab\ncd", 3), ("x" * 65535, 0), ("x" * 65536, 65536), ("y " * 40000, 79997)],
)
def test_pieces_end_at_lines_else_before_white_space(content, cut):
    """V-101."""
    assert texts._find_cut(content) == cut


def test_pieces_together_are_the_text(tmp_path):
    """V-101: also where a character lies across two steps of reading."""
    content = "ä€😀 word\n" * 9000 + "long" * 40000
    pieces = list(texts._read_pieces(write(tmp_path, content)))
    assert len(pieces) > 3
    assert "".join(pieces) == content


def test_texts_that_cannot_be_used_are_refused_in_one_line(tmp_path):
    """V-100."""
    assert "No such file" in refusal(tmp_path / "none.txt")
    assert "no regular file" in refusal(tmp_path)
    assert "empty" in refusal(write(tmp_path, ""))
    assert "empty" in refusal(write(tmp_path, " \n\t\n"))
    assert "NUL" in refusal(write(tmp_path, b"a\0b"))
    assert "not UTF-8" in refusal(write(tmp_path, b"caf\xe9 au lait"))
    assert "byte 3" in refusal(write(tmp_path, b"caf\xe9 au lait"))
    assert "byte 2" in refusal(write(tmp_path, "a\nä".encode()[:-1]))


def test_look_at_a_text_needs_no_tokenizer(tmp_path):
    """V-100."""
    check_text(write(tmp_path, "fine"))
    for content in ("", b"\xff\xfe"):
        with pytest.raises(UsageError):
            check_text(write(tmp_path, content))


def test_tokenizer_that_cannot_be_used_is_one_line(tmp_path):
    path = write(tmp_path, "fine")
    with pytest.raises(NinferError, match=r"tokenizer\.json cannot be used"):
        read_text(path, b'{"model": 3}', 10, VOCAB_ROWS)


def test_padding_and_truncation_of_the_tokenizer_are_ignored(tmp_path):
    """V-101: files exist that keep them from training."""
    content = json.loads(TOKENIZER)
    content["truncation"] = {
        "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0
    }  # fmt: skip
    path = write(tmp_path, "abcdefg hijk")
    found = read_text(path, json.dumps(content).encode(), 100, VOCAB_ROWS)
    np.testing.assert_array_equal(found.ids, read(path).ids)


def test_ids_beyond_the_embedding_are_refused(tmp_path):
    with pytest.raises(NinferError, match="beyond the embedding"):
        read_text(write(tmp_path, "zzz"), TOKENIZER, 100, 3)
