"""What a report says of source files, and what happens to files that change."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, read_report
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert import execution, fingerprint, source_hashes, whole_file
from ninfer_tools.convert.source_hashes import SourceFile, SourceHashes

ROOT = Path(__file__).parents[3]
WEIGHTS = "model.safetensors"
# Kills its own process after nine finished objects, with all sources hashed or with none.
KILLED = """
import os, signal, sys
sys.path[:0] = [{root!r} + "/tests", {root!r}]
from pathlib import Path
from builders.conversions import convert
from ninfer_tools.convert import execution
from ninfer_tools.convert.source_hashes import SourceHashes
def start(self):
    if {hashed}:
        self._thread.start()
        self._thread.join()
SourceHashes.start = start
execution.SYNC_BYTES = 0
finish, count = execution._Run._finish, [0]
def finish_or_die(self, parent, record):
    finish(self, parent, record)
    count[0] += 1
    if count[0] == 9:
        os.kill(os.getpid(), signal.SIGKILL)
execution._Run._finish = finish_or_die
convert(Path({folder!r}), Path({out!r}))
"""


def kill(folder, out, hashed):
    program = KILLED.format(root=str(ROOT), folder=str(folder), out=str(out), hashed=hashed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(out):
    return read_report(out)["sources"]["base"]["files"]


def flip_unsampled_bit(path):
    """Change a weight where the artifact id does not look, and put the file's time back."""
    before = path.stat()
    head = int.from_bytes(path.read_bytes()[:8], "little") + 8
    begin = [head + (before.st_size - head) * i // fingerprint._SAMPLES for i in (0, 1)]
    place = begin[0] + fingerprint._SAMPLE_BYTES
    assert place < begin[1]
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("shards", [1, 2])
def test_report_has_the_digest_of_every_file_that_was_read(tmp_path, out, shards):
    """V-150."""
    folder = build_checkpoint().write(tmp_path / "m", shards)
    (folder / "README.md").write_text("not read")
    assert convert(folder, out) == 0
    files = files_of(out)
    for name in {p.name for p in folder.iterdir()} - {"README.md"}:
        assert files[name]["sha256"] == sha256(folder / name), name
    assert "sha256" not in files["README.md"]


@pytest.mark.parametrize("hashed", [False, True])
def test_resumed_report_has_the_same_digests(folder, out, hashed):
    """V-150 and V-152: none is taken from a file that is another one by now."""
    kill(folder, out, hashed)
    assert convert(folder, out, resume=True) == 0
    assert files_of(out)[WEIGHTS]["sha256"] == sha256(folder / WEIGHTS)
    assert [p.name for p in out.parent.iterdir() if p.is_dir()] == []


@pytest.mark.parametrize("hashed", [False, True])
def test_source_that_changed_after_the_kill_is_not_resumed(folder, out, hashed):
    """V-152: also where neither time, size nor the samples of the artifact id tell."""
    kill(folder, out, hashed)
    flip_unsampled_bit(folder / WEIGHTS)
    with pytest.raises(UsageError, match="changed after the conversion was interrupted") as refused:
        convert(folder, out, resume=True)
    assert str(folder / WEIGHTS) in str(refused.value)
    assert not out.exists()
    assert convert(folder, out) == 0
    assert files_of(out)[WEIGHTS]["sha256"] == sha256(folder / WEIGHTS)


def test_source_that_was_only_touched_is_resumed(folder, out):
    """V-152: its content is known to be the same."""
    kill(folder, out, hashed=True)
    (folder / WEIGHTS).touch()
    assert convert(folder, out, resume=True) == 0


def test_source_that_changes_during_the_conversion_gives_no_artifact(folder, out, monkeypatch):
    """V-153."""
    write = execution._Run.write_literals

    def change(self):
        flip_unsampled_bit(folder / WEIGHTS)
        write(self)

    monkeypatch.setattr(execution._Run, "write_literals", change)
    with pytest.raises(NinferError, match="changed while it was converted"):
        convert(folder, out)
    assert [p for p in out.parent.iterdir() if p.is_file()] == []


def test_interruption_while_sources_are_hashed_is_resumed(folder, out, monkeypatch):
    """V-150 and V-170: nothing has its name before the report is complete."""

    def stop(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SourceHashes, "finish", stop)
        with pytest.raises(KeyboardInterrupt) as stopped:
            convert(folder, out)
    assert "--resume" in stopped.value.__notes__[0]
    assert [p for p in out.parent.iterdir() if p.is_file()] == []
    assert convert(folder, out, resume=True) == 0
    assert files_of(out)[WEIGHTS]["sha256"] == sha256(folder / WEIGHTS)


def test_source_that_changes_while_it_is_hashed_gives_no_artifact(folder, out, monkeypatch):
    """V-153: sources are looked at once more when all of them are hashed."""
    join = SourceHashes.finish

    def change(self):
        self._thread.join(10)
        flip_unsampled_bit(folder / WEIGHTS)
        join(self)

    monkeypatch.setattr(SourceHashes, "finish", change)
    # All is allowed to be hashed, so that the thread ends without the change.
    with pytest.raises(NinferError, match="changed while it was converted"):
        convert(folder, out)
    assert [p for p in out.parent.iterdir() if p.is_file()] == []


def test_digest_that_the_hub_states_is_taken(tmp_path):
    """V-151: the file was checked against it when it came."""
    path = tmp_path / "w"
    path.write_bytes(b"x" * 100)
    hashes = SourceHashes([SourceFile("base", "w", str(path), "ab" * 32)], tmp_path / "n", 10)
    hashes.start()
    hashes.finish()
    assert hashes.digests == {str(path): "ab" * 32}


def test_hasher_stays_near_the_conversion(tmp_path, monkeypatch):
    """V-151: pages come from the disk once for both."""
    monkeypatch.setattr(source_hashes, "LEAD_BYTES", 10_000)
    monkeypatch.setattr(whole_file, "_BLOCK_BYTES", 1_000)
    path = tmp_path / "w"
    path.write_bytes(bytes(100_000))
    hashes = SourceHashes([SourceFile("base", "w", str(path))], tmp_path / "n", 1000)
    step = hashes.follow(lambda count: None)
    hashes.start()
    for done in (0, 500):
        step(done)
        most = 10_000 + 100 * done + 1_000
        deadline = time.monotonic() + 5
        while hashes._hashed < most - 1_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert most - 1_000 <= hashes._hashed <= most
    step(500)
    hashes.finish()
    hashes.stop()
    assert hashes.digests[str(path)] == sha256(path)
