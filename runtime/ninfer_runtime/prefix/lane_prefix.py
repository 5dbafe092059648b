"""What a request under way has to do with the prefixes of others."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ninfer_runtime.prefix.reuse import Reuse
from ninfer_runtime.prefix.snapshot import Block, PrefixSnapshot


@dataclass
class LanePrefix:
    """`symbols` of the prompt; `taps` are depths, with their kinds, where its state is still to be
    kept; `lineage` are the blocks of its first pages; `kept` are snapshots it went on from or
    left."""

    symbols: np.ndarray
    reuse: Reuse = field(default_factory=Reuse)
    taps: list[tuple[int, str]] = field(default_factory=list)
    lineage: list[Block] = field(default_factory=list)
    kept: list[PrefixSnapshot] = field(default_factory=list)
