"""Laws of `--extract`: exact bytes, whole or not at all, and nothing overwritten by accident."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from builders.artifact_bytes import (
    entry_bytes,
    save,
    save_multi_file,
    save_small,
    small_payload,
    small_root,
)
from ninfer_tools.inspection import extraction

TEMPLATE = b"{{ x }}".ljust(300, b" ")
ROLE = "chat_template.jinja"


@pytest.mark.parametrize("role", [ROLE, f"text:{ROLE}", "resource/text/chat_template.jinja"])
def test_role_component_role_and_object_id_name_a_file(tmp_path, inspect, role):
    target = tmp_path / "out.jinja"
    answer = inspect(save_small(tmp_path), "--extract", f"{role}={target}")
    assert answer == (0, f"wrote {target} (300 B)\n", "")
    assert target.read_bytes() == TEMPLATE
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jinja", "small.ninfer"]


def test_several_files_come_out_in_one_call(tmp_path, inspect):
    one, two = tmp_path / "one", tmp_path / "two=2"
    record = inspect(
        save_small(tmp_path), "--extract", f"{ROLE}={one}", "--extract", f"weight/000000={two}",
        "--json",
    ).record  # fmt: skip
    assert record["extracted"] == [
        {"id": "resource/text/chat_template.jinja", "path": str(one), "bytes": 300},
        {"id": "weight/000000", "path": str(two), "bytes": 26112},
    ]
    assert two.read_bytes() == small_payload()[512:26624]


def test_object_across_parts_comes_out_whole(tmp_path, inspect):
    target = tmp_path / "w"
    assert inspect(save_multi_file(tmp_path), "--extract", f"weight/000000={target}").code == 0
    assert target.read_bytes() == small_payload()[512:26624]


def test_dash_writes_the_bytes_and_nothing_else_to_stdout(tmp_path):
    command = [sys.executable, "-m", "ninfer_tools", "inspect", str(save_small(tmp_path))]
    done = subprocess.run([*command, "--extract", f"{ROLE}=-"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, TEMPLATE, b"")


def test_existing_file_is_kept_without_force(tmp_path, inspect):
    target = save(tmp_path / "out", b"mine")
    path = save_small(tmp_path)
    answer = inspect(path, "--extract", f"{ROLE}={target}")
    assert answer.code == 2 and "exists" in answer.err
    assert target.read_bytes() == b"mine"
    assert inspect(path, "--extract", f"{ROLE}={target}", "--force").code == 0
    assert target.read_bytes() == TEMPLATE


def test_nothing_is_written_when_one_of_several_cannot_be(tmp_path, inspect):
    one, two = tmp_path / "one", save(tmp_path / "two", b"mine")
    answer = inspect(
        save_small(tmp_path), "--extract", f"{ROLE}={one}", "--extract", f"{ROLE}={two}"
    )
    assert answer.code == 2
    assert not one.exists()


def test_the_artifact_itself_is_never_overwritten(tmp_path, inspect):
    path = save_multi_file(tmp_path)
    for target in (path, tmp_path / "multi.ninfer.part-0001"):
        before = target.read_bytes()
        answer = inspect(path, "--extract", f"{ROLE}={target}", "--force")
        assert answer.code == 2 and "a file of the artifact itself" in answer.err
        assert target.read_bytes() == before


def test_device_is_never_replaced(tmp_path, inspect):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    answer = inspect(save_small(tmp_path), "--extract", f"{ROLE}={pipe}", "--force")
    assert answer.code == 2 and "not a regular file" in answer.err


def test_unknown_role_names_those_there_are(tmp_path, inspect):
    answer = inspect(save_small(tmp_path), "--extract", f"nope={tmp_path}/x")
    assert answer.code == 1
    assert "text:chat_template.jinja" in answer.err


def test_role_of_two_components_needs_the_component(tmp_path, inspect):
    root = small_root()
    second = {"id": "r2", "encoding": "raw_bytes_v1", "offset": 300, "bytes": 5}
    root["objects"].insert(1, {**second, "kind": "resource"})
    root["components"]["mtp"]["resources"] = {ROLE: "r2"}
    path = save(tmp_path / "m.ninfer", entry_bytes(root, small_payload()))
    answer = inspect(path, "--extract", f"{ROLE}={tmp_path}/x")
    assert answer.code == 2 and f"mtp:{ROLE}, text:{ROLE}" in answer.err
    assert inspect(path, "--extract", f"mtp:{ROLE}={tmp_path}/x").code == 0
    assert (tmp_path / "x").read_bytes() == bytes(5)


def test_two_extractions_to_one_path_are_refused(tmp_path, inspect):
    answer = inspect(save_small(tmp_path), *2 * ["--extract", f"{ROLE}={tmp_path}/x"])
    assert answer.code == 2 and "two extractions go to one path" in answer.err


def test_failed_write_leaves_nothing(tmp_path, inspect, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(extraction.os, "pwrite", fail)
    path = save_small(tmp_path)
    answer = inspect(path, "--extract", f"{ROLE}={tmp_path}/x")
    assert answer.code == 1 and "No space left on device" in answer.err
    assert list(tmp_path.iterdir()) == [path]
