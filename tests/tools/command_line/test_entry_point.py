"""Laws of the console script: one line, one JSON object, documented exit codes, whatever comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builders.artifact_bytes import (
    compact,
    entry_bytes,
    save,
    save_small,
    small_payload,
    small_root,
)

COMMAND = [sys.executable, "-m", "ninfer_tools"]


def run(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *map(os.fspath, map(str, arguments))],
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )


def test_bare_command_shows_the_help():
    done = run()
    assert done.returncode == 0
    assert b"inspect" in done.stdout


WRONG = {
    "unknown command": ["frobnicate"],
    "unknown option": ["inspect", "x", "--frobnicate"],
    "missing argument": ["migrate", "x"],
    "wrong type": ["migrate", "a", "b", "--to", "x"],
    "out of range": ["migrate", "a", "b", "--to", "9"],
    "nothing to inspect": ["inspect"],
    "missing file": ["inspect", "/nonexistent"],
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_usage_is_one_line_and_one_json_object(case):
    done = run(*WRONG[case], "--json")
    assert done.returncode == 2
    assert len(done.stderr.decode().strip().splitlines()) == 1
    assert json.loads(done.stdout)["error"]["exit_code"] == 2
    assert b"Traceback" not in done.stderr


def test_names_outside_the_terminals_encoding_are_escaped(tmp_path):
    path = save_small(tmp_path).rename(tmp_path / "ö\udcff.ninfer")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*COMMAND, "inspect", os.fsencode(path)], capture_output=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"\\xf6" in done.stdout
    done = subprocess.run(
        [*COMMAND, "inspect", os.fsencode(path), "--json"],
        capture_output=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)


def test_lone_surrogate_in_a_file_is_one_json_object(tmp_path):
    text = compact(small_root()).replace(b'"name":"demo"', b'"name":"a\\ud800b"')
    path = save(tmp_path / "x.ninfer", entry_bytes(text, small_payload()))
    done = run("inspect", path, "--json")
    assert done.returncode == 1
    assert "lone surrogate" in json.loads(done.stdout)["error"]["what"]


def test_full_standard_output_is_said(tmp_path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "inspect", str(save_small(tmp_path))],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().startswith("standard output: No space left")
    assert b"Traceback" not in done.stderr


def test_closed_pipe_ends_quietly(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "inspect", str(save_small(tmp_path)), "--objects"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_leaves_nothing_behind(tmp_path, number):
    """The writer is stopped while it holds its work folder; unwinding removes it."""
    program = (
        "import sys, time\n"
        "from ninfer_tools import entry_point\n"
        "from ninfer_formats.publication import publish\n"
        "def work(arguments):\n"
        f"    with publish({str(tmp_path / 'out')!r}, {{'out': 10}}):\n"
        "        print('ready', flush=True); time.sleep(60)\n"
        "entry_point._run = work\n"
        "entry_point.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert b"interrupted" in stderr
    assert list(tmp_path.iterdir()) == []


def test_lists_take_a_glob_or_none(tmp_path):
    path = save_small(tmp_path)
    for arguments in (
        ["inspect", path, "--objects"],
        ["inspect", "--objects", path],
        ["inspect", path, "--objects", "weight/*"],
        ["inspect", path, "--objects", "--json"],
    ):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert b"weight/000000" in done.stdout
