"""Laws of writers that meet (specs/publication.md, PUB-3)."""

import os
import threading

import pytest

from builders.file_sets import (
    ENTRY,
    NEW,
    ONE,
    PART_1,
    contents,
    write_set,
)
from ninfer_formats import writer_lock
from ninfer_formats.errors import UsageError
from ninfer_formats.publication import publish


def test_second_writer_of_the_same_entry_is_refused_by_name(tmp_path):
    """PUB-3"""
    with publish(tmp_path / ENTRY, {ENTRY: 5}) as output:
        with pytest.raises(UsageError) as raised:
            write_set(tmp_path / ENTRY, NEW, force=True)
        os.pwrite(output.file(ENTRY), b"entry", 0)
    assert "another process is writing m.ninfer" in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    assert contents(tmp_path) == ONE


def test_writers_of_different_entries_do_not_meet(tmp_path):
    """PUB-3, PUB-13"""
    with publish(tmp_path / ENTRY, {ENTRY: 5}) as output:
        write_set(tmp_path / "m", {"m": b"other"})
        os.pwrite(output.file(ENTRY), b"entry", 0)
    assert contents(tmp_path) == ONE | {"m": b"other"}


def test_of_writers_that_start_together_at_most_one_wins(tmp_path):
    """PUB-3"""
    start, outcomes = threading.Barrier(8), []

    def compete(index: int) -> None:
        start.wait()
        try:
            write_set(tmp_path / ENTRY, {ENTRY: b"%04d" % index, PART_1: b"%04d" % index})
            outcomes.append(index)
        except UsageError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=compete, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert len(outcomes) == 8
    assert len(winners) <= 1
    data = b"%04d" % winners[0] if winners else None
    assert contents(tmp_path) == ({ENTRY: data, PART_1: data} if winners else {})


def test_system_without_locks_publishes_and_cleans_nothing_it_cannot_judge(tmp_path, monkeypatch):
    """PUB-13"""
    monkeypatch.setattr(writer_lock, "fcntl", None)
    stranger = tmp_path / ".m.ninfer.ninfer-0123456789abcdef"
    stranger.mkdir()
    (stranger / "lock").write_bytes(b"1\n")
    write_set(tmp_path / ENTRY, NEW)
    assert contents(tmp_path) == NEW | {stranger.name: None}


@pytest.mark.parametrize("removed", [True, False])
def test_folder_that_a_cleaner_took_before_its_lock_is_given_up(tmp_path, monkeypatch, removed):
    """PUB-3, PUB-13: between making the lock file and locking it a folder looks like a leftover."""
    real, taken = writer_lock._lock, []

    def lose_the_first(descriptor: int) -> bool:
        if taken:
            return real(descriptor)
        (folder,) = tmp_path.iterdir()
        taken.append(folder)
        (folder / "lock").unlink()
        folder.rmdir()
        if removed:
            return real(descriptor)
        raise BlockingIOError

    monkeypatch.setattr(writer_lock, "_lock", lose_the_first)
    write_set(tmp_path / ENTRY, NEW)
    assert len(taken) == 1
    assert contents(tmp_path) == NEW
