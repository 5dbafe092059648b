"""Which rounds are captured (specs/engine.md EN-7)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ninfer_runtime.engine.graphs import KINDS, Rounds
from ninfer_runtime.engine.round import RoundKind

PLAIN, WIDE = RoundKind(), RoundKind(wide=True)
EDITED = RoundKind(penalised=True, masked=True)


class Recorder(Rounds):
    """Rounds whose captures and replays are noted instead of done."""

    def __init__(self, table: Any) -> None:
        self.captured: list[Any] = []
        nothing: Any = None
        super().__init__(nothing, nothing, table, 0)

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
def test_every_kind_and_bucket_is_captured_at_the_start(monkeypatch, lanes, buckets):
    """EN-7: once, the largest first."""
    captured = make_rounds(monkeypatch, lanes).captured
    assert len(captured) == len(set(captured)) == 4 * len(buckets)
    assert set(captured) == {(kind, bucket) for kind in KINDS for bucket in buckets}
    assert [bucket for _, bucket in captured] == sorted([*buckets] * 4, reverse=True)


def test_requests_only_replay(monkeypatch):
    """EN-7: a round takes the smallest bucket that holds its lanes, and a kind that can do more."""
    rounds = make_rounds(monkeypatch, 8)
    del rounds.captured[:]
    assert [rounds.run(WIDE, 3), rounds.run(WIDE, 4)] == [(WIDE, 4)] * 2
    assert rounds.run(PLAIN, 5) == (PLAIN, 8)
    assert rounds.run(RoundKind(penalised=True), 1) == (EDITED, 1)
    assert rounds.run(RoundKind(masked=True), 2) == (EDITED, 2)
    assert rounds.run(RoundKind(True, True, False), 2) == (replace(EDITED, wide=True), 2)
    assert rounds.captured == ["replay"] * 6
