"""Twenty thousand mutated files: a clean documented error or a usable artifact, within bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CASES = 20_000


def test_mutated_files_are_refused_cleanly_or_open():
    """Container rules C-1 to F-6, in a process of its own: time and memory are part of the law."""
    program = Path(__file__).with_name("fuzz_reader.py")
    done = subprocess.run(
        [sys.executable, str(program), "--cases", str(CASES), "--seed", "20250101"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert sum(summary["outcomes"].values()) == CASES
    assert summary["peak_mib"] < 512
    # Every kind of outcome must occur, or the mutations have lost their teeth.
    for outcome in ("opened", "refused ArtifactError", "refused ForeignFileError"):
        assert summary["outcomes"][outcome] > CASES // 200
