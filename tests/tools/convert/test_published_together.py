"""Artifact, report and manifest get their names together, whatever kills the process."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders.conversions import convert, read_report
from ninfer_formats.errors import UsageError
from ninfer_tools.convert import workplace

ROOT = Path(__file__).parents[3]
NAME, REPORT, MANIFEST = "a.ninfer", "a.ninfer.conversion.json", "artifact-manifest.json"
WORK = ".a.ninfer.ninfer-convert"
# Kills its own process before or after a file gets its final name.
KILLED = """
import os, sys
sys.path[:0] = [{root!r} + "/tests", {root!r}]
from pathlib import Path
from builders.conversions import convert
from ninfer_tools.convert.workplace import ResumablePublication
place = ResumablePublication._place
def place_or_die(self, name):
    if name == {name!r} and not {after}:
        os.kill(os.getpid(), 9)
    place(self, name)
    if name == {name!r}:
        os.kill(os.getpid(), 9)
ResumablePublication._place = place_or_die
convert(Path({folder!r}), Path({out!r}), manifest=True, force={force})
"""


def kill(folder, out, name, after=False, force=False):
    program = KILLED.format(
        root=str(ROOT), folder=str(folder), out=str(out), name=name, after=after, force=force
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == -9


def read_all(out):
    return {p.name: p.read_bytes() for p in out.parent.iterdir() if p.is_file()}


def assert_complete(out):
    assert sorted(p.name for p in out.parent.iterdir()) == [NAME, REPORT, MANIFEST]
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    assert json.loads((out.parent / MANIFEST).read_text())["artifact"]["sha256"] == digest
    assert read_report(out)["output"] == str(out)


def test_conversion_killed_before_the_entry_is_resumed(folder, out):
    """V-170: report and manifest have their names already, and lose them again."""
    kill(folder, out, NAME)
    assert not out.exists() and (out.parent / REPORT).exists()
    with pytest.raises(UsageError, match="another one"):
        convert(folder, out, manifest=True, resume=True, profile="bf16")
    assert read_all(out) == {}
    assert convert(folder, out, manifest=True, resume=True) == 0
    assert_complete(out)


def test_conversion_killed_after_the_entry_is_complete(folder, out):
    """V-170: what is left of the work goes at the next run."""
    kill(folder, out, NAME, after=True)
    before = read_all(out)
    assert sorted(before) == [NAME, REPORT, MANIFEST]
    with pytest.raises(UsageError, match="exists"):
        convert(folder, out, manifest=True, resume=True)
    assert read_all(out) == before
    assert_complete(out)


@pytest.mark.parametrize("name", [MANIFEST, NAME])
def test_replacement_that_was_killed_leaves_the_old_files(folder, out, name):
    """V-170: the old entry never goes, report and manifest come back."""
    assert convert(folder, out, manifest=True, profile="bf16") == 0
    before = read_all(out)
    kill(folder, out, name, force=True)
    assert out.read_bytes() == before[NAME]
    with pytest.raises(UsageError, match="exists"):
        convert(folder, out)
    assert read_all(out) == before
    assert convert(folder, out, manifest=True, force=True, resume=True) == 0
    assert_complete(out)
    assert out.read_bytes() != before[NAME]


def test_interrupted_replacement_brings_report_and_manifest_back(folder, out, monkeypatch):
    """V-170 and V-173."""
    assert convert(folder, out, manifest=True, profile="bf16") == 0
    before, place = read_all(out), workplace.ResumablePublication._place

    def stop_at_entry(self, name):
        if name == NAME:
            raise KeyboardInterrupt
        place(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(workplace.ResumablePublication, "_place", stop_at_entry)
        with pytest.raises(KeyboardInterrupt) as stopped:
            convert(folder, out, manifest=True, force=True)
    assert stopped.value.__notes__ == [
        "interrupted; the same command with --resume goes on from here"
    ]
    assert read_all(out) == before
    assert convert(folder, out, manifest=True, force=True, resume=True) == 0
    assert_complete(out)


def test_interruption_after_the_entry_promises_no_resume(folder, out, monkeypatch):
    """V-173: everything is there, and no work folder."""
    complete = workplace.ResumablePublication.complete

    def stop(self):
        complete(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(workplace.ResumablePublication, "complete", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        convert(folder, out, manifest=True)
    assert stopped.value.__notes__ == ["interrupted; the artifact is complete"]
    assert_complete(out)
