"""Public reports about the files of a checkpoint and their download: cases 46, 47, 50, 51."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from builders.artifact_bytes import save_small
from builders.checkpoints import INDEX, build_checkpoint
from builders.hub_server import Fault, HubServer
from builders.stored_forms import encode_safetensors

FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
REPOSITORY = "someone/Tiny-1B"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of two shards and an index."""
    return build_checkpoint().write(tmp_path / "m", 2)


def test_case_46_short_shard_is_named_with_both_sizes(folder, refused):
    path = folder / SECOND
    size = path.stat().st_size
    os.truncate(path, size - 4096)
    text = refused(folder)
    assert text.count("\n") == 1
    for fact in (SECOND, str(size), str(size - 4096)):
        assert fact in text


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123\n",
            "git-lfs pointer: the real file was not downloaded",
        ),
        (b"", "empty file"),
        (b"1234567", "7 bytes"),
        (b"\xff" * 8 + b'{"a":1}', "header of 18,446,744,073,709,551,615 bytes"),
        (b"<!DOCTYPE html><html>log in</html>", "HTML"),
    ],
)
def test_case_47_what_is_no_shard_is_told_by_what_it_is(folder, refused, data, looks):
    (folder / FIRST).write_bytes(data)
    text = refused(folder)
    assert text.count("\n") == 1 and looks in text and str(folder / FIRST) in text


def edit_index(folder, edit):
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_case_51_absent_files_are_listed_up_to_ten_with_their_count(tmp_path, refused):
    folder = build_checkpoint().write(tmp_path / "m", 16)
    shards = sorted(folder.glob("*.safetensors"))
    for path in shards[1:]:
        path.unlink()
    text = refused(folder)
    assert all(path.name in text for path in shards[1:11])
    assert text.count(".safetensors") == 10 and "15 in all" in text


def test_case_51_misplaced_tensors_are_listed_up_to_ten_with_their_count(folder, refused):
    def swap(places):
        for name, file in list(places.items()):
            places[name] = FIRST if file == SECOND else SECOND

    total = len(json.loads((folder / INDEX).read_text())["weight_map"])
    edit_index(folder, swap)
    text = refused(folder)
    assert FIRST in text and SECOND in text
    assert text.count(" in model-0000") == 10 and f"({total} in all)" in text


def test_case_51_tensor_in_two_shards_is_refused_by_name(tmp_path, folder, refused):
    other = build_checkpoint()
    name = "model.language_model.norm.weight"
    names = list(other.tensors)
    for begin, file in enumerate((FIRST, SECOND)):
        chosen = {n: other.tensors[n] for n in names[begin::2]} | {name: other.tensors[name]}
        (folder / file).write_bytes(encode_safetensors(chosen))
    text = refused(folder)
    assert name in text and FIRST in text and SECOND in text


def test_case_51_single_file_beside_an_index_is_ambiguous(folder, refused):
    build_checkpoint().write(folder)
    text = refused(folder)
    assert "both model.safetensors and model.safetensors.index.json" in text
    assert text.count("\n") == 1


@pytest.fixture
def server():
    with HubServer() as found:
        yield found


@pytest.fixture
def environment(server, tmp_path):
    clean = {key: value for key, value in os.environ.items() if "HF_" not in key}
    return {**clean, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}


def start(environment, *arguments, **more):
    line = [sys.executable, "-m", "ninfer_tools", *map(str, arguments)]
    return subprocess.Popen(
        line, env=environment | more, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(environment, *arguments, **more):
    process = start(environment, *arguments, **more)
    _, text = process.communicate(timeout=120)
    assert "Traceback" not in text
    return process.returncode, text


def test_case_50_killed_download_goes_on_and_is_verified(tmp_path, server, environment):
    """The rest of the faults: tests/tools/hub/test_trouble.py."""
    data = save_small(tmp_path).read_bytes()
    server.commit(REPOSITORY, {"a.ninfer": data})
    server.fail("a.ninfer", Fault(cut=len(data) * 4 // 10, stall=30))
    line = ("pull", f"{REPOSITORY}@main", "--to", tmp_path / "to")
    process = start(environment, *line)
    deadline = time.monotonic() + 30
    while not any(p.stat().st_size for p in tmp_path.glob("to/*") if p.is_file()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "to" / "a.ninfer").exists()
    code, text = finish(environment, *line)
    assert code == 0, text
    assert (tmp_path / "to" / "a.ninfer").read_bytes() == data
    assert [p.name for p in (tmp_path / "to").iterdir()] == ["a.ninfer"]


def test_case_50_offline_uses_a_complete_cache_and_names_what_a_partial_one_lacks(
    tmp_path, server, folder, environment
):
    commit = server.commit(REPOSITORY, {p.name: p.read_bytes() for p in folder.iterdir()})
    out = tmp_path / "a.ninfer"
    line = ("convert", f"{REPOSITORY}@{commit}", "--out", out, "--device", "cpu", "--force")
    code, text = finish(environment, *line)
    assert code == 0, text
    whole, asked = out.read_bytes(), len(server.requests)
    code, text = finish(environment, *line, HF_HUB_OFFLINE="1")
    assert code == 0, text
    assert (out.read_bytes(), len(server.requests)) == (whole, asked)
    for path in (tmp_path / "home").glob(f"**/snapshots/*/{SECOND}"):
        path.unlink()
    code, text = finish(environment, *line, HF_HUB_OFFLINE="1")
    assert code == 1 and SECOND in text and FIRST not in text
    assert out.read_bytes() == whole


def test_case_50_local_paths_never_need_the_network(tmp_path, server, folder, environment):
    line = ("convert", folder, "--out", tmp_path / "a.ninfer", "--device", "cpu")
    code, text = finish(environment, *line)
    assert code == 0, text
    assert server.requests == []
