"""Gated delta rule: rounds with replay records, folding them, and prefill in chunks."""

from ninfer_kernels.gated_delta.op import (
    fold_records,
    gated_delta_prefill,
    gated_delta_round,
)
from ninfer_kernels.gated_delta.records import ReplayRecords, allocate_records

__all__ = [
    "ReplayRecords",
    "allocate_records",
    "fold_records",
    "gated_delta_prefill",
    "gated_delta_round",
]
