"""Laws of publishing a set of output files (specs/publication.md)."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from builders.file_sets import (
    ENTRY,
    NEW,
    ONE,
    PART_1,
    PART_2,
    STEPS_WITHOUT_FORCE,
    contents,
    interrupt_at,
    write_set,
)
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.publication import publish


def test_published_set_has_its_bytes_and_nothing_else_remains(tmp_path):
    """PUB-1, PUB-6"""
    write_set(tmp_path / ENTRY, NEW)
    assert contents(tmp_path) == NEW


def test_no_final_name_exists_while_the_block_runs(tmp_path):
    """PUB-1, PUB-2"""
    with publish(tmp_path / ENTRY, {ENTRY: 3, PART_1: 3}) as output:
        os.pwrite(output.file(ENTRY), b"abc", 0)
        os.pwrite(output.file(PART_1), b"def", 0)
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith(".m.ninfer.ninfer-")
        assert len(folder.name) == len(".m.ninfer.ninfer-") + 16
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / "lock").read_text() == f"{os.getpid()}\n"


def test_parts_get_their_names_before_the_entry(tmp_path):
    """PUB-6"""
    seen = []

    def look(step: str) -> None:
        seen.append((step, sorted(set(contents(tmp_path)) & set(NEW))))

    write_set(tmp_path / ENTRY, NEW, on_step=look)
    assert [step for step, _ in seen] == STEPS_WITHOUT_FORCE
    assert [names for _, names in seen[3:]] == [
        [],
        [PART_1],
        [PART_1, PART_2],
        [ENTRY, PART_1, PART_2],
    ]


def test_every_file_and_the_folder_are_synced_before_the_entry_appears(tmp_path, monkeypatch):
    """PUB-5, PUB-6"""
    synced = []
    real = os.fsync

    def record(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        synced.append((name, (tmp_path / ENTRY).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write_set(tmp_path / ENTRY, NEW)
    before = [name for name, entry_exists in synced if not entry_exists]
    assert before[:4] == [ENTRY, PART_1, PART_2, "plan.draft"]
    assert before[-1] == tmp_path.name
    assert (tmp_path.name, True) in synced


def test_files_have_the_mode_that_the_umask_allows(tmp_path):
    """PUB-2"""
    before = os.umask(0o027)
    try:
        write_set(tmp_path / ENTRY, NEW)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o640}


def test_bytes_never_written_read_as_zero(tmp_path):
    """PUB-5: the size is exact even when the tail was skipped."""
    with publish(tmp_path / ENTRY, {ENTRY: 1 << 20}) as output:
        os.pwrite(output.file(ENTRY), b"x", 4096)
    data = (tmp_path / ENTRY).read_bytes()
    assert len(data) == 1 << 20
    assert data.strip(b"\0") == b"x"
    assert (tmp_path / ENTRY).stat().st_blocks * 512 < 1 << 20


def test_file_past_its_planned_size_is_not_published(tmp_path):
    """PUB-5"""
    with pytest.raises(NinferError, match=r"planned size \(got 6 bytes, want 5 bytes\)"):
        write_set_with_extra_byte(tmp_path / ENTRY)
    assert contents(tmp_path) == {}


def write_set_with_extra_byte(path: Path) -> None:
    with publish(path, {ENTRY: 5}) as output:
        os.pwrite(output.file(ENTRY), b"123456", 0)


def test_announced_file_that_was_never_opened_is_an_error(tmp_path):
    """PUB-5"""
    with (
        pytest.raises(NinferError, match=r"part-0001: .*got no file, want 3 bytes"),
        publish(tmp_path / ENTRY, {ENTRY: 3, PART_1: 3}) as output,
    ):
        output.file(ENTRY)
    assert contents(tmp_path) == {}


def test_unannounced_file_is_refused(tmp_path):
    """PUB-1"""
    with (
        pytest.raises(UsageError, match=r"other: not one of the announced"),
        publish(tmp_path / ENTRY, {ENTRY: 3}) as output,
    ):
        output.file("other")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_disk_that_fills_up_gives_one_error_and_leaves_nothing(tmp_path, code):
    """PUB-10"""
    with (
        pytest.raises(NinferError, match=r"m\.ninfer: writing stopped: .*1048581 bytes"),
        publish(tmp_path / ENTRY, {ENTRY: 5}) as output,
    ):
        os.pwrite(output.file(ENTRY), b"12", 0)
        raise OSError(code, os.strerror(code))
    assert contents(tmp_path) == {}


def test_disk_that_fills_up_at_the_final_sync_gives_one_error(tmp_path, monkeypatch):
    """PUB-10"""
    real = os.fsync

    def full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NinferError, match="writing stopped: No space left on device"):
        write_set(tmp_path / ENTRY, NEW)
    assert contents(tmp_path) == {}


def test_other_errors_of_the_block_pass_unchanged(tmp_path):
    """PUB-9"""
    error = OSError(errno.EIO, "the source disk failed")
    with (
        pytest.raises(OSError, match="the source disk failed") as raised,
        publish(tmp_path / ENTRY, {ENTRY: 5}) as output,
    ):
        output.file(ENTRY)
        raise error
    assert raised.value is error
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("step", STEPS_WITHOUT_FORCE[:-1])
def test_interrupt_at_any_step_leaves_nothing(tmp_path, step):
    """PUB-9"""
    with pytest.raises(KeyboardInterrupt):
        write_set(tmp_path / ENTRY, NEW, on_step=interrupt_at(step))
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("force", [False, True])
def test_interrupt_after_the_entry_appeared_keeps_the_new_set(tmp_path, force):
    """PUB-9"""
    with pytest.raises(KeyboardInterrupt):
        write_set(tmp_path / ENTRY, NEW, force=force, on_step=interrupt_at("entry published"))
    assert contents(tmp_path) == NEW


def test_sigint_while_writing_leaves_nothing(tmp_path):
    """PUB-9"""
    script = (
        "import os, sys, time\n"
        "from ninfer_formats.publication import publish\n"
        "with publish(sys.argv[1], {'m.ninfer': 1 << 20}) as output:\n"
        "    os.pwrite(output.file('m.ninfer'), b'x', 0)\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ENTRY)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(contents(tmp_path)) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("name", [ENTRY, PART_2])
def test_file_that_appears_meanwhile_is_not_overwritten(tmp_path, name):
    """PUB-7"""

    def intrude(step: str) -> None:
        if step == "planned":
            (tmp_path / name).write_bytes(b"precious")

    with pytest.raises(UsageError, match="created by another process"):
        write_set(tmp_path / ENTRY, NEW, on_step=intrude)
    assert contents(tmp_path) == {name: b"precious"}


def test_plan_names_every_file_with_its_inode_and_size(tmp_path):
    """PUB-5"""
    plans = []

    def read_plan(step: str) -> None:
        if step == "planned":
            (folder,) = tmp_path.iterdir()
            plans.append(json.loads((folder / "plan.json").read_text()))
            for name, (inode, size, mtime) in plans[0]["files"].items():
                found = (folder / "new" / name).stat()
                assert (inode, size, mtime) == (found.st_ino, found.st_size, found.st_mtime_ns)

    write_set(tmp_path / ENTRY, NEW, on_step=read_plan)
    assert plans[0]["entry"] == ENTRY
    assert set(plans[0]["files"]) == set(NEW)


def test_relative_path_survives_a_change_of_folder(tmp_path, monkeypatch):
    """PUB-1"""
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with publish(ENTRY, {ENTRY: 5}) as output:
        monkeypatch.chdir(tmp_path)
        os.pwrite(output.file(ENTRY), b"entry", 0)
    assert contents(tmp_path / "a") == ONE
    assert contents(tmp_path) == {"a": None}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_closed_however_the_block_ends(tmp_path):
    """PUB-9"""
    before = open_descriptors()
    write_set(tmp_path / ENTRY, NEW)
    with pytest.raises(KeyboardInterrupt):
        write_set(tmp_path / "n", {"n": b"x"}, on_step=interrupt_at("written n"))
    with pytest.raises(UsageError):
        write_set(tmp_path / ENTRY, NEW)
    assert open_descriptors() == before
