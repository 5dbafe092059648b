"""Conversions of every kind of object, killed at random moments until they are done: V-50 to V-52.

Experts stacked and one by one, imported codes, activation divisors, proposal head, drafter; one
file and several.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders import killed_conversions
from builders.conversions import convert
from builders.model_sources import SOURCES

KINDS = [
    ("experts stacked", "nvfp4", 300_000),
    ("ct mixed experts", "groupwise-int", 300_000),
    ("modelopt mixed", "fp8", 32_000_000_000),
    ("dflash2", "nvfp4", 250_000),
]
KILLS, MOST_STEPS = 6, 120
WORK = ".a.ninfer.ninfer-convert"


def hash_files(folder):
    names = [p for p in folder.iterdir() if p.is_file() and not p.name.endswith(".json")]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in names}


@pytest.mark.parametrize(("name", "profile", "limit"), KINDS)
def test_killed_conversion_ends_with_the_bytes_of_an_undisturbed_one(
    tmp_path, name, profile, limit
):
    folder, sources = SOURCES[name]().write(tmp_path)
    options = {
        "profile": profile, "max_file_bytes": limit, "proposal_rows": 64, "sources": sources
    }  # fmt: skip
    out, other = tmp_path / "killed" / "a.ninfer", tmp_path / "whole" / "a.ninfer"
    for path in (out, other):
        path.parent.mkdir()
    chosen = random.Random(name)
    moments = [chosen.randrange(1, MOST_STEPS) for _ in range(KILLS)] + [0]
    job = {"source": str(folder), "out": str(out), "options": options, "moments": moments}
    program = [sys.executable, str(Path(killed_conversions.__file__)), json.dumps(job)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    runs = json.loads(done.stdout)
    killed = [run for run in runs if os.WIFSIGNALED(run["status"])]
    assert len(killed) >= 3
    assert all(os.WTERMSIG(run["status"]) == signal.SIGKILL for run in killed)
    assert all("a.ninfer" not in run["names"] and WORK in run["names"] for run in killed)
    assert convert(folder, other, **options) == 0
    assert hash_files(out.parent) == hash_files(other.parent)
    assert len(hash_files(out.parent)) == (1 if limit > 1 << 30 else len(runs[-1]["names"]) - 1)
