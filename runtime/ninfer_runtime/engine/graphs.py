"""Rounds as CUDA graphs: one launch instead of hundreds."""

from __future__ import annotations

import torch

from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.engine.round import Emission, RoundKind, run_round
from ninfer_runtime.models.qwen3_5.model import Model, ModelState

BUCKETS = (1, 2, 4, 8)


def choose_bucket(lanes: int, most: int) -> int:
    """Return how many lanes a round has so that the first `lanes` take part."""
    return min(most, next(bucket for bucket in BUCKETS if bucket >= lanes))


class Rounds:
    """Runs rounds of the first lanes: captured once for every kind and bucket, or not at all.
    The plain kind is captured at once, the others when they are first needed.

    Captured rounds of all kinds share one memory pool: their results are read before, and on the
    same stream as, the next one is launched.
    """

    def __init__(self, model: Model, state: ModelState, table: LaneTable, captured: bool) -> None:
        self._model, self._state, self._table, self._captured = model, state, table, captured
        self._graphs: dict[tuple[RoundKind, int], tuple[torch.cuda.CUDAGraph, Emission]] = {}
        self._pool = torch.cuda.graph_pool_handle() if captured else None
        if captured:
            for bucket in sorted({min(bucket, table.lanes) for bucket in BUCKETS}):
                self.capture(RoundKind(), bucket)

    def run(self, kind: RoundKind, lanes: int) -> Emission:
        """Run a round in which the first `lanes` lanes, or a few more, take part."""
        bucket = choose_bucket(lanes, self._table.lanes)
        if not self._captured:
            return run_round(self._model, self._state, self._table.first(bucket), kind)
        if (kind, bucket) not in self._graphs:
            self.capture(kind, bucket)
        graph, emission = self._graphs[kind, bucket]
        graph.replay()
        return emission

    def capture(self, kind: RoundKind, bucket: int) -> None:
        """Capture a round. Compiling kernels inside a capture would fail: it runs once before,
        with every lane idle, which changes nothing."""
        table = self._table.first(bucket)
        counts = self._table.counts.clone()
        self._table.counts.zero_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run_round(self._model, self._state, table, kind)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            emission = run_round(self._model, self._state, table, kind)
        self._graphs[kind, bucket] = graph, emission
        self._table.counts.copy_(counts)
