"""Laws of `ninfer inspect --magic`: one line, at most 64 bytes read, whatever follows them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from builders.artifact_bytes import part_bytes, save, save_small
from ninfer_tools.inspection import magic

GIBIBYTE = 2**30


@pytest.mark.parametrize("version", [1, 2, 3])
def test_readable_version_is_the_only_line(tmp_path, inspect, version):
    answer = inspect(save_small(tmp_path, version), "--magic")
    assert answer == (0, f"NINFER 000{version}\n", "")


def test_a_broken_directory_does_not_matter(tmp_path, inspect):
    path = save(tmp_path / "m.ninfer", b"NINFER\0\2" + b"\xff" * 50)
    assert inspect(path, "--magic") == (0, "NINFER 0002\n", "")


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"GGUF" + bytes(60), "GGUF"),
        ((9).to_bytes(8, "little") + b'{"a":{}}', "safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04" + bytes(60), "zip"),
        (b"", "empty"),
        (b"NINFER\0", "truncated"),
        (bytes(64), "zeros"),
        (b"NINFER\0\4" + bytes(56), "version 4 needs a newer release"),
        (part_bytes(7, b""), "continuation part 7"),
    ],
)
def test_anything_else_is_one_line_on_stderr_and_exit_2(tmp_path, inspect, data, looks):
    answer = inspect(save(tmp_path / "m.ninfer", data), "--magic")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert looks in answer.err


def test_part_names_the_entry_to_open(tmp_path, inspect):
    path = save(tmp_path / "m.ninfer.part-0001", part_bytes(1, b"x"))
    assert inspect(path, "--magic").err.rstrip().endswith("open the entry instead: m.ninfer")


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_what_is_no_regular_file_is_exit_2_without_hanging(tmp_path, inspect, kind):
    path = tmp_path / "m.ninfer"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    answer = inspect(path, "--magic")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"{path}: ")


def test_at_most_64_bytes_are_read_of_a_30_gib_file(tmp_path, monkeypatch):
    path = save_small(tmp_path, 2)
    with path.open("r+b") as file:
        file.truncate(30 * GIBIBYTE)
    asked = []
    read = os.read

    def count(descriptor: int, size: int) -> bytes:
        asked.append(size)
        return read(descriptor, size)

    monkeypatch.setattr(magic.os, "read", count)
    for name in ("pread", "readv", "preadv"):
        monkeypatch.delattr(magic.os, name)
    assert magic.read_version(path) == 2
    assert asked == [64]


def test_json_gives_version_and_magic(tmp_path, inspect):
    path = save_small(tmp_path, 3)
    want = {"path": str(path), "magic": "NINFER 0003", "version": 3}
    assert inspect(path, "--magic", "--json").record == want


def test_json_of_a_foreign_file_says_exit_code_2(tmp_path, inspect):
    answer = inspect(save(tmp_path / "m", b"NINFER\0\4" + bytes(56)), "--magic", "--json")
    assert answer.code == answer.record["error"]["exit_code"] == 2


def test_numpy_is_not_imported(tmp_path):
    script = (
        "import sys; from ninfer_tools.entry_point import main\n"
        f"sys.argv = ['ninfer', 'inspect', {str(save_small(tmp_path, 2))!r}, '--magic']\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "print(code, 'numpy' in sys.modules, 'mmap' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "NINFER 0002\n0 False False\n", done.stderr
