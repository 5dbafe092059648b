"""Laws of cleaning up after killed writers (specs/publication.md, PUB-11 to PUB-13)."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders.file_sets import (
    ENTRY,
    NEW,
    OLD,
    ONE,
    PART_1,
    PART_2,
    STEPS_WITH_FORCE,
    STEPS_WITHOUT_FORCE,
    contents,
    interrupt_at,
    lay_out,
    write_set,
)
from ninfer_formats import leftovers, publication, work_folder
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.leftovers import clean_leftovers

STRAY = ".m.ninfer.ninfer-0123456789abcdef"
WORKER = """
import os, signal, sys
from ninfer_formats.publication import publish

path, fatal, force, *pairs = sys.argv[1:]
files = dict(pair.split("=") for pair in pairs)

def die_at(step):
    if step == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

sizes = {name: len(data) for name, data in files.items()}
with publish(path, sizes, force=bool(force), on_step=die_at) as output:
    for name, data in files.items():
        os.pwrite(output.file(name), data.encode(), 0)
        die_at("writing")
"""


def write_and_die(path: Path, step: str, files: dict[str, bytes] = NEW, force: bool = False):
    pairs = [f"{name}={data.decode()}" for name, data in files.items()]
    command = [sys.executable, "-c", WORKER, str(path), step, "force" * force, *pairs]
    assert subprocess.run(command).returncode == -signal.SIGKILL


@pytest.mark.parametrize("step", ["writing", *STEPS_WITHOUT_FORCE])
def test_writer_killed_at_any_step_leaves_no_entry_or_the_whole_set(tmp_path, step):
    """PUB-11, PUB-13"""
    write_and_die(tmp_path / ENTRY, step)
    if step == "entry published":
        assert {name: contents(tmp_path)[name] for name in NEW} == NEW
        with pytest.raises(UsageError, match="exists"):
            write_set(tmp_path / ENTRY, OLD)
        assert contents(tmp_path) == NEW
    else:
        assert not (tmp_path / ENTRY).exists()
        write_set(tmp_path / ENTRY, OLD)
        assert contents(tmp_path) == OLD


@pytest.mark.parametrize("step", ["writing", *STEPS_WITH_FORCE])
def test_forced_writer_killed_at_any_step_loses_neither_set(tmp_path, step):
    """PUB-8, PUB-11, PUB-12"""
    lay_out(tmp_path, OLD)
    write_and_die(tmp_path / ENTRY, step, force=True)
    found = contents(tmp_path)
    if ENTRY in found:
        whole = NEW if step == "entry published" else OLD
        assert {name: found.get(name) for name in whole} == whole
    assert clean_leftovers(tmp_path / ENTRY) == []
    assert contents(tmp_path) == (NEW if step == "entry published" else OLD)


@pytest.mark.parametrize("step", ["writing", f"written {ENTRY}", "planned", "entry published"])
def test_forced_writer_of_one_file_killed_at_any_step_leaves_a_whole_file(tmp_path, step):
    """PUB-8, PUB-11"""
    (tmp_path / ENTRY).write_bytes(b"old")
    write_and_die(tmp_path / ENTRY, step, files=ONE, force=True)
    expected = b"entry" if step == "entry published" else b"old"
    assert (tmp_path / ENTRY).read_bytes() == expected
    write_set(tmp_path / ENTRY, {ENTRY: b"next"}, force=True)
    assert contents(tmp_path) == {ENTRY: b"next"}


def test_entry_moved_away_after_the_kill_does_not_cost_its_parts(tmp_path):
    """PUB-12: renaming an entry is legal, so the target path says nothing about the set."""
    write_and_die(tmp_path / ENTRY, "entry published")
    (tmp_path / ENTRY).rename(tmp_path / "renamed.ninfer")
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == {
        "renamed.ninfer": NEW[ENTRY],
        PART_1: NEW[PART_1],
        PART_2: NEW[PART_2],
    }


def abandon(folder: Path, monkeypatch, step: str, files: dict[str, bytes] = NEW) -> Path:
    """Leave what a kill at `step` of a forced publication leaves; return the work folder."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(publication, "settle", lambda folder: None)
        write_set(folder / ENTRY, files, force=True, on_step=interrupt_at(step))
    (left,) = folder.glob(".m.ninfer.ninfer-*")
    return left


def interrupt_after(monkeypatch, calls: int) -> None:
    """Let `calls` deletions and renames through, then interrupt."""
    left = iter(range(calls))

    def counted(real):
        def call(*args, **options):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return real(*args, **options)

        return call

    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(Path, "rmdir", counted(Path.rmdir))
    monkeypatch.setattr(leftovers, "move_exclusively", counted(leftovers.move_exclusively))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))


@pytest.mark.parametrize("step", [STEPS_WITH_FORCE[6], STEPS_WITH_FORCE[8], "entry published"])
@pytest.mark.parametrize("calls", range(11))
def test_interrupted_cleaning_ends_the_same_when_repeated(tmp_path, monkeypatch, step, calls):
    """PUB-12"""
    lay_out(tmp_path, OLD)
    left = abandon(tmp_path, monkeypatch, step)
    with monkeypatch.context() as patch:
        interrupt_after(patch, calls)
        try:
            clean_leftovers(tmp_path / ENTRY)
            finished = True
        except KeyboardInterrupt:
            finished = False
    clean_leftovers(tmp_path / ENTRY)
    expected: dict[str, bytes | None] = {**(NEW if step == "entry published" else OLD)}
    if not finished and left.exists():
        # Only the last step, removing the emptied folder, was missed; it holds no lock to judge by.
        assert list(left.iterdir()) == []
        expected[left.name] = None
    assert contents(tmp_path) == expected


def test_cleaning_is_interrupted_at_every_step_by_the_test_above(tmp_path, monkeypatch):
    """PUB-12: eleven interruptions reach past the longest cleaning."""
    lay_out(tmp_path, OLD)
    abandon(tmp_path, monkeypatch, STEPS_WITH_FORCE[8])
    interrupt_after(monkeypatch, 11)
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == OLD


def test_name_taken_meanwhile_stops_the_restoration_and_keeps_the_old_set(tmp_path, monkeypatch):
    """PUB-12"""
    lay_out(tmp_path, OLD)
    left = abandon(tmp_path, monkeypatch, f"set aside {PART_2}")
    (tmp_path / PART_2).write_bytes(b"precious")
    with pytest.raises(NinferError, match=rf"part-0002: .*its name is taken.*remove .*{left.name}"):
        write_set(tmp_path / ENTRY, NEW, force=True)
    assert (tmp_path / PART_2).read_bytes() == b"precious"
    assert (left / "old" / PART_2).read_bytes() == OLD[PART_2]
    assert not (tmp_path / ENTRY).exists()
    (tmp_path / PART_2).unlink()
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == OLD


def test_file_that_took_the_entry_meanwhile_outlives_the_old_set(tmp_path, monkeypatch):
    """PUB-12"""
    lay_out(tmp_path, OLD)
    abandon(tmp_path, monkeypatch, f"set aside {PART_2}")
    (tmp_path / ENTRY).write_bytes(b"precious")
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == {ENTRY: b"precious"}


def test_part_replaced_after_the_kill_is_not_withdrawn(tmp_path):
    """PUB-12"""
    write_and_die(tmp_path / ENTRY, f"placed {PART_2}")
    (tmp_path / PART_1).unlink()
    (tmp_path / PART_1).write_bytes(NEW[PART_1])
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == {PART_1: NEW[PART_1]}


@pytest.mark.parametrize(
    "plan",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"entry": "m.ninfer"}',
        b'{"entry": "other", "files": {}}',
        b'{"entry": "m.ninfer", "files": {"../victim": [1, 2, 3]}}',
        b'{"entry": "m.ninfer", "files": {"victim": [1]}}',
    ],
)
def test_plan_that_is_not_ours_directs_no_deletion(tmp_path, monkeypatch, plan):
    """PUB-12"""
    lay_out(tmp_path, OLD)
    left = abandon(tmp_path, monkeypatch, f"set aside {PART_2}")
    (left / "plan.json").write_bytes(plan)
    clean_leftovers(tmp_path / ENTRY)
    assert contents(tmp_path) == OLD


def plain_file(folder: Path) -> None:
    (folder / STRAY).write_bytes(b"precious")


def folder_without_lock(folder: Path) -> None:
    (folder / STRAY / "new").mkdir(parents=True)
    (folder / STRAY / "new" / ENTRY).write_bytes(b"precious")


def folder_with_lock(folder: Path, name: str = STRAY) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "lock").write_bytes(b"1\n")


def link_to_a_work_folder(folder: Path) -> None:
    folder_with_lock(folder, "elsewhere")
    (folder / STRAY).symlink_to(folder / "elsewhere")


def lock_that_is_a_link(folder: Path) -> None:
    (folder / "elsewhere").write_bytes(b"")
    (folder / STRAY).mkdir()
    (folder / STRAY / "lock").symlink_to(folder / "elsewhere")


@pytest.mark.parametrize(
    "make",
    [
        plain_file,
        folder_without_lock,
        link_to_a_work_folder,
        lock_that_is_a_link,
        lambda folder: folder_with_lock(folder, STRAY + "0"),
        lambda folder: folder_with_lock(folder, STRAY[:-1]),
        lambda folder: folder_with_lock(folder, STRAY.upper()),
        lambda folder: folder_with_lock(folder, ".other.ninfer.ninfer-0123456789abcdef"),
        lambda folder: folder_with_lock(folder, ".m.ninfer.ninfer-b.ninfer-0123456789abcdef"),
    ],
)
def test_what_only_looks_like_a_leftover_is_left_alone(tmp_path, make):
    """PUB-13"""
    make(tmp_path)
    before = tree(tmp_path)
    write_set(tmp_path / ENTRY, ONE)
    assert tree(tmp_path) == sorted([*before, ENTRY])


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_leftover_with_a_free_lock_is_removed(tmp_path):
    """PUB-13: the counterpart of the test above."""
    folder_with_lock(tmp_path)
    write_set(tmp_path / ENTRY, ONE)
    assert contents(tmp_path) == ONE


def test_lock_of_a_folder_removed_meanwhile_proves_nothing(tmp_path, monkeypatch):
    """PUB-13: its name could belong to a new writer by now."""

    def take_lock_too_late(folder) -> int:
        descriptor = os.open(folder.lock, os.O_RDWR)
        folder.lock.unlink()
        return descriptor

    folder_with_lock(tmp_path)
    (tmp_path / STRAY / "new").mkdir()
    monkeypatch.setattr(leftovers, "take_lock", take_lock_too_late)
    clean_leftovers(tmp_path / ENTRY)
    assert tree(tmp_path) == [STRAY, f"{STRAY}/new"]


def test_leftover_of_another_user_is_left_alone(tmp_path, monkeypatch):
    """PUB-13"""
    folder_with_lock(tmp_path)
    user = os.geteuid()
    monkeypatch.setattr(work_folder.os, "geteuid", lambda: user + 1)
    assert clean_leftovers(tmp_path / ENTRY) == []
    assert tree(tmp_path) == [STRAY, f"{STRAY}/lock"]


def test_cleaning_follows_no_symbolic_link(tmp_path):
    """PUB-13"""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ENTRY).write_bytes(b"precious")
    folder_with_lock(tmp_path)
    (tmp_path / STRAY / "old").symlink_to(outside)
    (tmp_path / STRAY / "new").mkdir()
    (tmp_path / STRAY / "new" / "link").symlink_to(outside)
    (tmp_path / STRAY / "plan.draft").symlink_to(outside / ENTRY)
    clean_leftovers(tmp_path / ENTRY)
    assert tree(tmp_path) == ["outside", f"outside/{ENTRY}"]


def test_foreign_file_inside_a_leftover_stays(tmp_path):
    """PUB-12"""
    folder_with_lock(tmp_path)
    (tmp_path / STRAY / "notes.txt").write_bytes(b"precious")
    clean_leftovers(tmp_path / ENTRY)
    assert tree(tmp_path) == [STRAY, f"{STRAY}/notes.txt"]


def test_living_writer_is_reported_and_left_alone(tmp_path):
    """PUB-13"""
    with publication.publish(tmp_path / ENTRY, {ENTRY: 5}) as output:
        os.pwrite(output.file(ENTRY), b"entry", 0)
        before = tree(tmp_path)
        (living,) = clean_leftovers(tmp_path / ENTRY)
        assert living.path.name == before[0]
        assert tree(tmp_path) == before
    assert contents(tmp_path) == ONE
