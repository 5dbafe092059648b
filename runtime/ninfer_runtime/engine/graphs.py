"""Rounds as CUDA graphs: one launch instead of hundreds."""

from __future__ import annotations

import torch

from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.engine.reservation import hold_small
from ninfer_runtime.engine.round import Emission, RoundKind, run_round
from ninfer_runtime.models.qwen3_5.model import Model, ModelState
from ninfer_runtime.weights.budget import GraphPool

BUCKETS = (1, 2, 4, 8)

# Neutral penalties and masks of ones change no logit, so one kind edits logits for either.
KINDS = tuple(
    RoundKind(wide, penalised=edited, masked=edited)
    for wide in (False, True)
    for edited in (False, True)
)


def captured_kind(kind: RoundKind) -> RoundKind:
    """Return the kind of KINDS that does all that `kind` does."""
    edited = kind.penalised or kind.masked
    return RoundKind(kind.wide, edited, edited)


def choose_bucket(lanes: int, most: int) -> int:
    """Return how many lanes a round has so that the first `lanes` take part."""
    return min(most, next(bucket for bucket in BUCKETS if bucket >= lanes))


class Rounds:
    """Runs rounds of the first lanes: captured at the start for every kind and bucket, or not at
    all.

    Captured rounds of all kinds share one memory pool: their results are read before, and on the
    same stream as, the next one is launched.
    """

    def __init__(
        self, model: Model, state: ModelState, table: LaneTable, pool: GraphPool | None
    ) -> None:
        """Capture all rounds into a pool whose memory is taken at once; None: capture none."""
        captured = pool is not None
        self._model, self._state, self._table, self._captured = model, state, table, captured
        self._planned = pool
        self._graphs: dict[tuple[RoundKind, int], tuple[torch.cuda.CUDAGraph, Emission]] = {}
        self._pool = torch.cuda.graph_pool_handle() if captured else None
        if captured:
            # The largest first: what the others need lies in memory that it gave back.
            for bucket in sorted({min(bucket, table.lanes) for bucket in BUCKETS}, reverse=True):
                for kind in reversed(KINDS):
                    self.capture(kind, bucket)

    def run(self, kind: RoundKind, lanes: int) -> Emission:
        """Run a round in which the first `lanes` lanes, or a few more, take part."""
        bucket = choose_bucket(lanes, self._table.lanes)
        if not self._captured:
            return run_round(self._model, self._state, self._table.first(bucket), kind)
        graph, emission = self._graphs[captured_kind(kind), bucket]
        graph.replay()
        return emission

    def capture(self, kind: RoundKind, bucket: int) -> None:
        """Capture a round. Compiling kernels inside a capture would fail: it runs once before,
        with every lane idle, which changes nothing; on the stream of all other work, whose memory
        it shares."""
        table = self._table.first(bucket)
        counts = self._table.counts.clone()
        self._table.counts.zero_()
        run_round(self._model, self._state, table, kind)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            if not self._graphs:
                self._fill_pool()
            emission = run_round(self._model, self._state, table, kind)
        self._graphs[kind, bucket] = graph, emission
        self._table.counts.copy_(counts)

    def _fill_pool(self) -> None:
        """Take segments for all captures: what is given back at once is cut up from here on."""
        device = self._table.counts.device
        if self._planned is not None:
            torch.empty(self._planned.large, dtype=torch.uint8, device=device)
            hold_small(device, self._planned.small)
