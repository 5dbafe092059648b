"""Laws of naming finished files (specs/publication.md, PUB-7 and PUB-8)."""

import errno
import os

import pytest

from builders.file_sets import (
    ENTRY,
    NEW,
    OLD,
    ONE,
    PART_1,
    PART_2,
    STEPS_WITH_FORCE,
    contents,
    interrupt_at,
    lay_out,
    write_set,
)
from ninfer_formats import placement
from ninfer_formats.errors import UsageError


def no_hard_links(source, target):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def no_exclusive_rename(source, target):
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.fixture(params=["exclusive rename", "check and rename"])
def file_system_without_hard_links(request, monkeypatch):
    monkeypatch.setattr(placement.os, "link", no_hard_links)
    if request.param == "check and rename":
        monkeypatch.setattr(placement, "_rename_no_replace", no_exclusive_rename)


@pytest.mark.usefixtures("file_system_without_hard_links")
class TestWithoutHardLinks:
    """PUB-7, PUB-9, PUB-12 where a file system such as exFAT holds the output."""

    def test_set_is_published(self, tmp_path):
        write_set(tmp_path / ENTRY, NEW)
        assert contents(tmp_path) == NEW

    def test_forced_set_is_published(self, tmp_path):
        lay_out(tmp_path, OLD)
        write_set(tmp_path / ENTRY, NEW, force=True)
        assert contents(tmp_path) == NEW

    @pytest.mark.parametrize("step", STEPS_WITH_FORCE[:-1])
    def test_interrupt_keeps_the_old_set(self, tmp_path, step):
        lay_out(tmp_path, OLD)
        with pytest.raises(KeyboardInterrupt):
            write_set(tmp_path / ENTRY, NEW, force=True, on_step=interrupt_at(step))
        assert contents(tmp_path) == OLD

    @pytest.mark.parametrize("name", [ENTRY, PART_2])
    def test_file_that_appears_meanwhile_is_not_overwritten(self, tmp_path, name):
        def intrude(step: str) -> None:
            if step == "planned":
                (tmp_path / name).write_bytes(b"precious")

        with pytest.raises(UsageError, match="created by another process"):
            write_set(tmp_path / ENTRY, NEW, on_step=intrude)
        assert contents(tmp_path) == {name: b"precious"}

    def test_part_replaced_by_somebody_else_is_not_withdrawn(self, tmp_path):
        def replace_part(step: str) -> None:
            if step == f"placed {PART_1}":
                (tmp_path / PART_1).unlink()
                (tmp_path / PART_1).write_bytes(b"somebody else's")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_set(tmp_path / ENTRY, NEW, on_step=replace_part)
        assert contents(tmp_path) == {PART_1: b"somebody else's"}


@pytest.mark.parametrize("step", STEPS_WITH_FORCE[:-1])
def test_interrupt_at_any_step_of_a_forced_publication_keeps_the_old_set(tmp_path, step):
    """PUB-8, PUB-9"""
    lay_out(tmp_path, OLD)
    with pytest.raises(KeyboardInterrupt):
        write_set(tmp_path / ENTRY, NEW, force=True, on_step=interrupt_at(step))
    assert contents(tmp_path) == OLD


def test_force_replaces_one_file_without_a_moment_of_absence(tmp_path):
    """PUB-8"""
    (tmp_path / ENTRY).write_bytes(b"old")
    seen = []
    write_set(
        tmp_path / ENTRY,
        ONE,
        force=True,
        on_step=lambda step: seen.append((step, (tmp_path / ENTRY).read_bytes())),
    )
    assert seen == [
        (f"written {ENTRY}", b"old"),
        ("planned", b"old"),
        ("entry published", b"entry"),
    ]
    assert contents(tmp_path) == ONE


def test_force_never_mixes_old_and_new_files_under_the_entry(tmp_path):
    """PUB-8, PUB-11"""
    lay_out(tmp_path, OLD)
    seen = []

    def look(step: str) -> None:
        seen.append(step)
        found = contents(tmp_path)
        if ENTRY in found:
            files = {name: found.get(name) for name in NEW}
            assert files == (NEW if step == "entry published" else OLD)

    write_set(tmp_path / ENTRY, NEW, force=True, on_step=look)
    assert seen == STEPS_WITH_FORCE
    assert contents(tmp_path) == NEW


def test_force_removes_old_parts_that_the_new_set_does_not_have(tmp_path):
    """PUB-8"""
    lay_out(tmp_path, OLD | {"m.ninfer.part-0003": b"somebody else's"})
    write_set(tmp_path / ENTRY, ONE, force=True, replaces=[PART_1, PART_2, "absent"])
    assert contents(tmp_path) == ONE | {"m.ninfer.part-0003": b"somebody else's"}


def test_force_replaces_a_symbolic_link_and_not_what_it_points_to(tmp_path):
    """PUB-8"""
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / ENTRY).symlink_to(tmp_path / "elsewhere")
    (tmp_path / PART_1).symlink_to(tmp_path / "elsewhere")
    write_set(tmp_path / ENTRY, NEW, force=True)
    assert contents(tmp_path) == NEW | {"elsewhere": b"precious"}
    assert not (tmp_path / ENTRY).is_symlink()


def test_folder_that_appears_meanwhile_survives_force(tmp_path):
    """PUB-4, PUB-8"""

    def intrude(step: str) -> None:
        if step == "planned":
            (tmp_path / PART_1).mkdir()
            (tmp_path / PART_1 / "inside").write_bytes(b"precious")

    (tmp_path / ENTRY).write_bytes(b"old")
    with pytest.raises(UsageError, match="is a folder"):
        write_set(tmp_path / ENTRY, NEW, force=True, on_step=intrude)
    assert contents(tmp_path) == {ENTRY: b"old", PART_1: None}
    assert (tmp_path / PART_1 / "inside").read_bytes() == b"precious"
