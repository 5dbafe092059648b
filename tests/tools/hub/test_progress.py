"""Laws of progress: seldom whole lines where there is no terminal, nothing for the quick."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ninfer_tools.hub import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock to be set; no terminal."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_lines_come_every_ten_seconds(clock, capsys, monkeypatch):
    """P-20."""
    monkeypatch.setattr("tqdm.std.time", lambda: clock.seconds)
    with progress.show_transfer(100 << 20, "m.ninfer") as advance:
        for _ in range(25):
            clock.seconds += 1
            advance(4 << 20)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "m.ninfer: 41.9M of 105M (40 %), 4.19MB/s, 00:15 left",
        "m.ninfer: 83.9M of 105M (80 %), 4.19MB/s, 00:05 left",
    ]


def test_quick_transfer_says_nothing(clock, capsys):
    """P-20."""
    with progress.show_transfer(1000, "m.ninfer") as advance:
        advance(1000)
        advance(-500)
    assert capsys.readouterr().err == ""


def test_terminal_gets_a_bar(monkeypatch, capsys):
    """P-20."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert progress.plain_line_bar() is None
    with progress.show_transfer(1000, "m.ninfer") as advance:
        advance(1000)
    assert "m.ninfer: 100%" in capsys.readouterr().err
