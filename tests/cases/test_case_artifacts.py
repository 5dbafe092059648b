"""Public reports about artifact files: cases 1, 3, 4 and 15, and 47 for artifacts."""

from __future__ import annotations

import hashlib
import shutil
import time
from contextlib import contextmanager

import pytest

from builders.artifact_bytes import save, save_small
from builders.edited_artifacts import find_object, lay_again, save_v3, v3_root
from builders.edited_artifacts import save_legacy as save_legacy_edited
from builders.sparse_files import fingerprint, save_legacy
from ninfer_formats.output_target import OutputTarget
from ninfer_formats.reader import open_artifact

FOREIGN = {
    "lfs pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 123\n",
        "git-lfs pointer",
    ),
    "empty": (b"", "empty"),
    "7 bytes": (b"NINFER\0", "truncated"),
    "huge length": (b"\xff" * 8 + b"{}", "not a .ninfer artifact, looks like an unknown file"),
    "login page": (b"<!DOCTYPE html><html>log in</html>", "HTML"),
    "GGUF": (b"GGUF" + bytes(60), "GGUF"),
    "safetensors": ((9).to_bytes(8, "little") + b'{"a":{}}\n', "safetensors"),
    "random": (
        b"\x8f\x11\xa7\x03\xee\x52\x9c\x40" + bytes(60),
        "not a .ninfer artifact, looks like an unknown file",
    ),
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_case_01_readable_container_version_simply_opens(tmp_path, ninfer, version):
    assert ninfer("inspect", save_small(tmp_path, version)).code == 0


def test_case_01_other_engine_gets_the_migrate_command(tmp_path, ninfer):
    path = save_legacy(tmp_path / "old.ninfer", "3.8 int")
    answer = ninfer("check", path, "--engine", "upstream-v3")
    assert answer.code == 1
    assert "ninfer migrate" in answer.out + answer.err


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_case_01_newer_version_needs_a_newer_release(tmp_path, ninfer, command):
    begin = time.process_time()
    answer = ninfer(command, save(tmp_path / "m.ninfer", b"NINFER\0\4" + bytes(5000)))
    assert answer.code in (1, 2) and "newer release" in answer.err
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("command", ["inspect", "check"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_case_01_and_47_foreign_file_is_told_by_what_it_looks_like(tmp_path, ninfer, command, kind):
    data, looks = FOREIGN[kind]
    path = save(tmp_path / "m.ninfer", data)
    answer = ninfer(command, path)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert looks in answer.err and str(path) in answer.err
    assert "newer release" not in answer.err


@pytest.mark.parametrize("engine", ["upstream-v2", "this"])
def test_case_03_other_revision_names_object_found_and_expected(tmp_path, ninfer, engine):
    def revise(root):
        item = find_object(root, "text/token_embedding")
        item["format"], item["layout"] = "BF16", "contiguous-le-v1"
        lay_again(root)

    path = save_legacy_edited(tmp_path / "m.ninfer", "qwen3.8-27b", edit=revise)
    answer = ninfer("check", path, "--engine", engine)
    assert answer.code == 1
    assert (
        "text/token_embedding does not match the contract: "
        "found [248320, 5120] bf16 contiguous_le_v1, "
        "expected [248320, 5120] q8_g32_fp16 row_split_k128_v1; producer: none recorded"
    ) in answer.out
    row = ninfer("inspect", path, "--objects", "text/token_embedding").out
    assert "[248320, 5120]  bf16  contiguous_le_v1" in row


def test_case_03_inspect_shows_the_recorded_producer(tmp_path, ninfer):
    root = v3_root(layers=4) | {"provenance": {"converter": "ninfer-v3", "version": "0.7.1"}}
    answer = ninfer("inspect", save_v3(tmp_path / "m.ninfer", root))
    assert answer.code == 0 and "converter ninfer-v3, version 0.7.1" in answer.out


def test_case_03_digest_tells_files_of_one_name_apart(tmp_path, ninfer):
    digests = []
    for value in (1, 2):
        (tmp_path / str(value)).mkdir()
        path = save_small(tmp_path / str(value))
        data = bytearray(path.read_bytes())
        data[-4 - 512] ^= value
        path.write_bytes(data)
        answer = ninfer("inspect", path, "--digest")
        assert answer.code == 0
        digests.append(hashlib.sha256(data).hexdigest())
        assert digests[-1] in answer.out
    assert digests[0] != digests[1]


@pytest.mark.parametrize("cut", ["7 bytes", "mid-directory", "last 4 KiB"])
def test_case_04_truncated_file_is_refused_with_both_sizes(tmp_path, ninfer, whole_artifact, cut):
    data = whole_artifact.read_bytes()
    keep = {"7 bytes": 7, "mid-directory": 500, "last 4 KiB": len(data) - 4096}[cut]
    path = save(tmp_path / "m.ninfer", data[:keep])
    for command in ("inspect", "check"):
        answer = ninfer(command, path)
        assert answer.code in (1, 2)
        assert f"{keep:,}" in answer.err or str(keep) in answer.err
        if cut == "last 4 KiB":
            assert str(len(data)) in answer.err.replace(",", "")


def test_case_04_zeros_to_the_right_size_are_found_by_verify(tmp_path, ninfer, whole_artifact):
    data = whole_artifact.read_bytes()
    path = save(tmp_path / "m.ninfer", data[: len(data) - 20_000] + bytes(20_000))
    quick = ninfer("inspect", path)
    assert quick.code == 0 and "--verify" in quick.out
    assert ninfer("inspect", path, "--verify").code == 1
    assert ninfer("inspect", whole_artifact, "--verify").code == 0


@pytest.fixture
def room(monkeypatch):
    """Sparse outputs need no disk, but announce twenty gigabytes."""
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 2**50)


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_case_15_same_path_is_refused(tmp_path, ninfer, room, options):
    path = save_legacy(tmp_path / "a.ninfer", "3.8 int")
    before = fingerprint(path)
    answer = ninfer("migrate", path, path, *options)
    assert answer.code == 2 and fingerprint(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.ninfer"]


def test_case_15_interrupt_half_way_leaves_the_source_alone(tmp_path, ninfer, room, monkeypatch):
    done = [0]

    @contextmanager
    def stop_half_way(total, title):
        def advance(count):
            done[0] += count
            if done[0] >= total / 2:
                raise KeyboardInterrupt

        yield advance

    path = save_legacy(tmp_path / "a.ninfer", "3.8 int")
    before = fingerprint(path)
    monkeypatch.setattr("ninfer_tools.migrate.command.show_progress", stop_half_way)
    answer = ninfer("migrate", path, tmp_path / "b.ninfer")
    assert answer.code == 130 and done[0] > 0
    assert fingerprint(path) == before
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".ninfer")] == ["a.ninfer"]
    monkeypatch.undo()
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 2**50)
    assert ninfer("migrate", path, tmp_path / "b.ninfer").code == 0


def test_case_15_full_disk_is_refused_before_the_first_byte(tmp_path, ninfer, monkeypatch):
    path = save_legacy(tmp_path / "a.ninfer", "3.8 int")
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 10 << 20)
    answer = ninfer("migrate", path, tmp_path / "b.ninfer")
    assert answer.code == 2 and "disk space" in answer.err
    assert [p.name for p in tmp_path.iterdir()] == ["a.ninfer"]


def test_case_15_second_run_leaves_the_first_result(tmp_path, ninfer, room):
    path, out = save_legacy(tmp_path / "a.ninfer", "3.8 int"), tmp_path / "b.ninfer"
    assert ninfer("migrate", path, out).code == 0
    before = fingerprint(out)
    assert "exists" in ninfer("migrate", path, out).err
    assert ninfer("migrate", path, out, "--force").code == 0
    assert fingerprint(out) == before


def test_case_15_current_file_has_nothing_to_do(tmp_path, ninfer, whole_artifact):
    source = shutil.copy(whole_artifact, tmp_path / "a.ninfer")
    answer = ninfer("migrate", source, tmp_path / "b.ninfer")
    assert answer.code == 0 and "nothing to do" in answer.out + answer.err
    assert (tmp_path / "b.ninfer").read_bytes() == whole_artifact.read_bytes()
    assert open_artifact(tmp_path / "b.ninfer").version == 3
