"""Headers are read, and hostile files refused, as specs/sources.md S-10 to S-15 say."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from builders.stored_forms import Stored, encode_header, encode_safetensors
from ninfer_formats.errors import NinferError
from ninfer_tools.convert.sources.files import LocalFolder
from ninfer_tools.convert.sources.safetensors_file import read_header

FILE = "model.safetensors"


def read(tmp_path, raw):
    (tmp_path / FILE).write_bytes(raw)
    return read_header(LocalFolder(tmp_path), FILE)


def refusal(tmp_path, raw):
    with pytest.raises(NinferError) as caught:
        read(tmp_path, raw)
    assert str(tmp_path / FILE) in str(caught.value)
    return str(caught.value)


def entry(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def file(entries, data=4):
    return encode_header(entries) + bytes(data)


def test_tensors_come_with_their_place_in_the_file(tmp_path):
    """S-10, S-15: a golden file that a person can check."""
    header = (
        b'{"__metadata__":{"a":"b"},"y":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},'
        b'"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}          '
    )
    raw = b"\x90\0\0\0\0\0\0\0" + header + b"\0\0\x80\x3f" + b"\x80\x3f\0\0"
    assert len(header) == 0x90
    x, y = read(tmp_path, raw)
    assert x == ("x", "F32", (), FILE, 0x98, 0x9C)
    assert y == ("y", "BF16", (2, 1), FILE, 0x9C, 0xA0)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git-lfs pointer"),
        (b"", "an empty file"),
        (b"\x10\0\0\0\0\0\0", "7 bytes"),
        (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615 bytes"),
        (b"<!DOCTYPE html><html>login</html>", "HTML"),
        (b"GGUF" + bytes(60), "GGUF"),
        (bytes(64), "zeros"),
    ],
)  # fmt: skip
def test_other_files_are_called_what_they_are(tmp_path, raw, expected):
    """S-10, case 47."""
    assert expected in refusal(tmp_path, raw)


def test_declared_length_is_never_allocated(tmp_path):
    """S-10, case 47."""
    tracemalloc.start()
    refusal(tmp_path, (99_000_000).to_bytes(8, "little") + b"{" + bytes(100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_short_file_is_refused_with_both_sizes(tmp_path):
    """S-11, case 46: the header is whole, the last tensor is not."""
    raw = encode_safetensors({"a": Stored("U8", np.arange(9000, dtype="u1"))})
    text = refusal(tmp_path, raw[:-4096])
    assert f"{len(raw) - 4096} bytes" in text and f"{len(raw)} bytes" in text


def test_longer_file_is_refused(tmp_path):
    """S-11."""
    assert "longer" in refusal(tmp_path, file({"a": entry()}, data=5))


def test_file_that_ends_in_its_header_is_refused(tmp_path):
    """S-11."""
    assert "cut short" in refusal(tmp_path, file({"a": entry()}, data=0)[:40])


@pytest.mark.parametrize(
    "entries",
    [
        {"a": entry(dtype="Q7")},
        {"a": entry(dtype=None)},
        {"a": entry(shape=(-4,))},
        {"a": entry(shape=(4.0,))},
        {"a": entry(shape=(True,), offsets=(0, 1))},
        {"a": entry(shape=(2**62, 2**62))},
        {"a": entry(dtype="BF16")},
        {"a": entry(offsets=(4, 0))},
        {"a": entry(offsets=(0, 4, 4))},
        {"a": entry(offsets=(0, 2**80))},
        {"a": {"dtype": "U8", "shape": [4]}},
        {"a": [1]},
    ],
)
def test_entries_that_contradict_themselves_are_refused(tmp_path, entries):
    """S-12."""
    assert "header is broken" in refusal(tmp_path, file(entries))


@pytest.mark.parametrize(
    ("second", "expected"),
    [((2, 6), "overlaps a"), ((0, 4), "overlaps a"), ((6, 10), "unused bytes after a")],
)
def test_tensors_lie_side_by_side(tmp_path, second, expected):
    """S-13."""
    raw = file({"a": entry(), "b": entry(offsets=second)}, data=10)
    assert expected in refusal(tmp_path, raw)


def test_first_tensor_begins_at_zero(tmp_path):
    """S-13."""
    assert "4 unused bytes in front" in refusal(tmp_path, file({"a": entry(offsets=(4, 8))}, 8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":' + json.dumps(entry()).encode() + b',"a":1}', "duplicate key"),
        (b'{"a":', "not JSON"),
        (b'{"\xff":1}', "UTF-8"),
        (b'{"a":NaN}', "not finite"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_header_is_strict_json(tmp_path, text, expected):
    """S-14."""
    message = refusal(tmp_path, file(text))
    assert expected in message and "safetensors header" in message and "directory" not in message


def test_file_without_tensors_is_legal(tmp_path):
    """S-11."""
    assert read(tmp_path, file({}, data=0)) == []
