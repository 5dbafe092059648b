"""Conversions that are killed, and what `--resume` makes of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert
from ninfer_formats.errors import UsageError
from ninfer_tools.convert import execution, workplace

ROOT = Path(__file__).parents[3]
# Kills its own process after so many finished objects, each journalled at once.
KILLED = """
import os, signal, sys
sys.path[:0] = [{root!r} + "/tests", {root!r}]
from builders.conversions import convert
from ninfer_tools.convert import execution
execution.SYNC_BYTES = 0
finish, count = execution._Run._finish, [0]
def finish_or_die(self, parent, record):
    finish(self, parent, record)
    count[0] += 1
    if count[0] == {objects}:
        os.kill(os.getpid(), signal.SIG{signal})
execution._Run._finish = finish_or_die
from pathlib import Path
convert(Path({folder!r}), Path({out!r}), max_file_bytes={limit})
"""
WORK = ".a.ninfer.ninfer-convert"


def kill_conversion(folder, out, name="KILL", objects=9, limit=300_000):
    program = KILLED.format(
        root=str(ROOT), folder=str(folder), out=str(out), signal=name, objects=objects, limit=limit
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def read_set(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if ".ninfer" in p.name and
            not p.name.endswith(".json") and p.is_file()}  # fmt: skip


@pytest.mark.parametrize("name", ["KILL", "INT"])
def test_resumed_conversion_has_the_bytes_of_an_undisturbed_one(tmp_path, monkeypatch, name):
    """V-50, V-51 and V-52: nothing at the target meanwhile, finished objects are kept."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "o" / "a.ninfer"
    out.parent.mkdir()
    done = kill_conversion(folder, out, name)
    assert done.returncode == -{"KILL": signal.SIGKILL, "INT": signal.SIGINT}[name]
    assert [p.name for p in out.parent.iterdir()] == [WORK]
    journal = (out.parent / WORK / "journal.jsonl").read_text().splitlines()
    # Ctrl-C reaches the main thread a moment later: objects may end meanwhile.
    assert len(journal) == 10 or (name == "INT" and len(journal) > 10)
    encoded = []
    write = execution._Run._write_parent
    monkeypatch.setattr(
        execution._Run, "_write_parent",
        lambda self, parent: (encoded.append(parent.id), write(self, parent))[1],
    )  # fmt: skip
    assert convert(folder, out, resume=True, max_file_bytes=300_000) == 0
    assert not set(encoded) & {json.loads(line)["object"] for line in journal[1:]}
    assert not (out.parent / WORK).exists()
    other = tmp_path / "p" / "a.ninfer"
    other.parent.mkdir()
    assert convert(folder, other, max_file_bytes=300_000) == 0
    assert read_set(out.parent) == read_set(other.parent)
    assert len(read_set(other.parent)) > 1


def test_resume_refuses_the_work_of_another_plan(tmp_path):
    """V-53."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    kill_conversion(folder, out)
    with pytest.raises(UsageError, match="was another one"):
        convert(folder, out, resume=True, profile="bf16")
    assert (tmp_path / WORK).exists()


def test_run_without_resume_starts_over(tmp_path):
    """V-54."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    kill_conversion(folder, out)
    assert convert(folder, out, profile="bf16") == 0
    assert not (tmp_path / WORK).exists()


def test_line_of_the_journal_that_was_cut_off_is_not_believed(tmp_path):
    """V-52."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    kill_conversion(folder, out, limit=32_000_000_000)
    journal = tmp_path / WORK / "journal.jsonl"
    journal.write_text(journal.read_text() + '{"object": "weight/0000')
    assert convert(folder, out, resume=True) == 0
    again = tmp_path / "b" / "a.ninfer"
    again.parent.mkdir()
    assert convert(folder, again) == 0
    assert out.read_bytes() == again.read_bytes()


def test_second_writer_of_the_same_output_is_refused(tmp_path, monkeypatch):
    """V-56."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    seen = []

    def try_again(self):
        with pytest.raises(UsageError, match="another process") as refused:
            monkeypatch.setattr(execution._Run, "write_literals", write)
            convert(folder, out)
        seen.append(str(refused.value))
        write(self)

    write = execution._Run.write_literals
    monkeypatch.setattr(execution._Run, "write_literals", try_again)
    assert convert(folder, out) == 0
    assert len(seen) == 1


def test_publication_that_was_killed_is_undone_and_repeated(tmp_path):
    """V-55: killed between the parts and the entry, the parts lose their final names again."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    program = KILLED.format(
        root=str(ROOT), folder=str(folder), out=str(out), signal="KILL", objects=0, limit=300_000
    )
    stop = """
from ninfer_tools.convert.workplace import ResumablePublication as P
place = P._place
P._place = lambda self, n: os.kill(os.getpid(), 9) if n == "a.ninfer" else place(self, n)
"""
    at = program.index("from pathlib")
    subprocess.run([sys.executable, "-c", program[:at] + stop + program[at:]], check=False)
    assert not out.exists() and (tmp_path / "a.ninfer.part-0001").exists()
    assert convert(folder, out, max_file_bytes=300_000, resume=True) == 0
    assert out.exists() and not (tmp_path / WORK).exists()
    again = tmp_path / "b" / "a.ninfer"
    again.parent.mkdir()
    assert convert(folder, again, max_file_bytes=300_000) == 0
    assert read_set(tmp_path) == read_set(again.parent)


def test_interrupted_publication_leaves_the_old_artifact_and_the_new_work(tmp_path, monkeypatch):
    """V-55: under --force, Ctrl-C between the parts and the entry brings the old set back."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    assert convert(folder, out, max_file_bytes=300_000, profile="bf16") == 0
    before, place = read_set(tmp_path), workplace.ResumablePublication._place

    def stop_at_entry(self, name):
        if name == "a.ninfer":
            raise KeyboardInterrupt
        place(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(workplace.ResumablePublication, "_place", stop_at_entry)
        with pytest.raises(KeyboardInterrupt):
            convert(folder, out, max_file_bytes=300_000, force=True)
    assert read_set(tmp_path) == before
    assert convert(folder, out, max_file_bytes=300_000, force=True, resume=True) == 0
    assert read_set(tmp_path) != before


def test_work_whose_file_is_gone_is_done_again(tmp_path):
    """V-52: the journal alone proves nothing."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    kill_conversion(folder, out)
    (tmp_path / WORK / "new" / "a.ninfer").unlink()
    assert convert(folder, out, resume=True, max_file_bytes=300_000) == 0
    again = tmp_path / "b" / "a.ninfer"
    again.parent.mkdir()
    assert convert(folder, again, max_file_bytes=300_000) == 0
    assert read_set(tmp_path) == read_set(again.parent)
