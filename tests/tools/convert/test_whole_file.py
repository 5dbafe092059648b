"""Laws of files that appear whole."""

from __future__ import annotations

import hashlib

import pytest

from ninfer_tools.convert import whole_file
from ninfer_tools.convert.whole_file import hash_file, write_whole


def test_file_is_replaced_and_no_draft_stays(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_file_that_cannot_be_finished_keeps_its_old_content(tmp_path, monkeypatch, fault):
    def fail(_):
        raise fault

    path = tmp_path / "a.json"
    path.write_text("old")
    monkeypatch.setattr(whole_file.os, "fsync", fail)
    with pytest.raises(type(fault)):
        write_whole(path, b"new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_hash_is_of_all_blocks_and_tells_of_each(tmp_path, monkeypatch):
    monkeypatch.setattr(whole_file, "_BLOCK_BYTES", 4)
    path, told = tmp_path / "a", []
    path.write_bytes(b"0123456789")
    assert hash_file(path, told.append) == hashlib.sha256(b"0123456789").hexdigest()
    assert told == [4, 4, 2]
