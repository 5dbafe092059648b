"""Which rounds are captured (specs/engine.md EN-7)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ninfer_runtime.engine.graphs import Rounds
from ninfer_runtime.engine.round import RoundKind

PLAIN, WIDE = RoundKind(), RoundKind(wide=True)


class Recorder(Rounds):
    """Rounds whose captures and replays are noted instead of done."""

    def __init__(self, table: Any) -> None:
        self.captured: list[Any] = []
        nothing: Any = None
        super().__init__(nothing, nothing, table, True)

    def capture(self, kind: RoundKind, bucket: int) -> None:
        self.captured.append((kind, bucket))
        graph: Any = SimpleNamespace(replay=lambda: self.captured.append("replay"))
        emission: Any = (kind, bucket)
        self._graphs[kind, bucket] = graph, emission


def make_rounds(monkeypatch: pytest.MonkeyPatch, lanes: int) -> Any:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    return Recorder(SimpleNamespace(lanes=lanes))


@pytest.mark.parametrize(
    ("lanes", "buckets"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])]
)
def test_plain_rounds_of_every_bucket_are_captured_at_the_start(monkeypatch, lanes, buckets):
    """EN-7"""
    assert make_rounds(monkeypatch, lanes).captured == [(PLAIN, bucket) for bucket in buckets]


def test_other_kinds_are_captured_once_when_they_are_needed(monkeypatch):
    """EN-7: a round takes the smallest bucket that holds its lanes."""
    rounds = make_rounds(monkeypatch, 8)
    del rounds.captured[:]
    assert [rounds.run(WIDE, 3), rounds.run(WIDE, 4)] == [(WIDE, 4)] * 2
    assert rounds.run(PLAIN, 5) == (PLAIN, 8)
    assert rounds.captured == [(WIDE, 4), "replay", "replay", "replay"]
