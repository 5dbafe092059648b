"""Mapped files that are cut short while they are read."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys, threading
import numpy as np
from ninfer_tools import entry_point
from ninfer_tools.convert.sources.files import LocalFolder
def work(arguments):
    values = LocalFolder({folder!r}).map("w")
    os.truncate({folder!r} + "/w", 10)
    def read():
        print(int(values.copy().max()))
    if {threaded}:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    else:
        read()
    return 0
entry_point._run = work
sys.argv[1:] = [{command!r}]
entry_point.main()
"""


def read_cut_file(tmp_path, command="convert", threaded=False):
    (tmp_path / "w").write_bytes(b"x" * 1_000_000)
    program = PROGRAM.format(folder=str(tmp_path), command=command, threaded=threaded)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_file_that_is_cut_short_ends_in_one_line(tmp_path):
    """V-176."""
    for threaded in (False, True):
        done = read_cut_file(tmp_path, "convert", threaded)
        assert done.returncode == 1, done
        (line,) = done.stderr.split("\n")[1:-1]
        assert line.startswith("a source file was cut short, or its disk failed")
    assert read_cut_file(tmp_path, "verify").returncode == 1
