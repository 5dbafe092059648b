"""Commands whose output nobody reads, that have no standard streams, or that are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert

COMMAND = [sys.executable, "-m", "ninfer_tools"]
ROOT = Path(__file__).parents[3]
NAMES = ["a.ninfer", "a.ninfer.conversion.json"]


def run_unread(*arguments, both=False):
    """Run with standard output (and standard error) a pipe whose other end is closed."""
    process = subprocess.Popen(
        [sys.executable, "-u", *COMMAND[1:], *map(str, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    error = b"" if both else process.stderr.read()
    return process.wait(), error


@pytest.mark.parametrize("both", [False, True])
def test_conversion_ends_its_work_when_nobody_reads(folder, out, both):
    """V-180."""
    assert run_unread("convert", folder, "--out", out, "--device", "cpu", both=both) == (0, b"")
    assert sorted(p.name for p in out.parent.iterdir()) == NAMES


def test_verdict_is_the_exit_code_also_when_nobody_reads(folder, out, tmp_path):
    """V-180."""
    assert convert(folder, out) == 0
    other = build_checkpoint(seed=7).write(tmp_path / "n")
    arguments = ("verify", out, "--samples", 8, "--against")
    assert run_unread(*arguments, folder)[0] == 0
    assert run_unread(*arguments, other)[0] == 1


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_are_the_null_device(folder, out, closed):
    """V-181: and no output file takes their place."""
    program = (
        "import os, sys\n"
        f"for number in {closed}: os.close(number)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    arguments = ["-m", "ninfer_tools", "convert", str(folder), "--out", str(out)]
    read, write = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], stdout=write, stderr=write, check=False
    )
    os.close(write)
    with os.fdopen(read, "rb") as told:
        assert b"Traceback" not in told.read()
    assert done.returncode == 0
    assert sorted(p.name for p in out.parent.iterdir()) == NAMES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_conversion_says_how_it_goes_on(folder, out, number):
    """V-173: one line, and the code of the signal."""
    program = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}]
from ninfer_tools.convert import execution
execution._Run.write_parents = lambda self: os.kill(os.getpid(), {int(number)})
from ninfer_tools.entry_point import main
sys.argv[1:] = ["convert", {str(folder)!r}, "--out", {str(out)!r}, "--device", "cpu"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 128 + number
    assert done.stderr == "interrupted; the same command with --resume goes on from here\n"
    assert [p.is_file() for p in out.parent.iterdir()] == [False]
