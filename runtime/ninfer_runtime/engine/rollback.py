"""Taking a lane back to an earlier token: small writes on the device, nothing is copied or read.

What a round wrote past the kept tokens needs no undoing: keys, values, window columns and records
lie by token position, are read only below the position of the column that reads them, and are
overwritten by the columns that come next.
"""

from __future__ import annotations

import torch

from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.engine.sequence import Sequence
from ninfer_runtime.state.recurrent import RecurrentState


def roll_back(table: LaneTable, recurrent: RecurrentState, sequence: Sequence, keep: int) -> None:
    """Put the lane of a sequence where it was when its first `keep` tokens were emitted.

    They are no fewer than before the newest two rounds of the lane, and nothing can be taken back
    again before another round ran. The next round has one column: the drafts belong to tokens
    that are gone.
    """
    lane, prompt = sequence.lane, sequence.request.prompt
    base = len(prompt) - 1 + keep
    own = slice(lane, lane + 1)
    accepted, settled = recurrent.accepted[own], recurrent.settled[own]
    accepted.sub_(table.base[own] - base)
    settled.copy_(torch.minimum(settled, accepted))
    table.base[lane] = base
    table.remaining[lane] = sequence.max_tokens - keep
    table.tokens[lane, 0] = sequence.emitted[keep - 1] if keep else prompt[-1]
    table.counts[lane] = 1
    if sequence.request.sampling.penalised:
        _recount(table.history[lane], sequence.emitted[:keep])


def _recount(history: torch.Tensor, tokens: list[int]) -> None:
    ids = torch.tensor(tokens, dtype=torch.int64, device=history.device)
    history.zero_().index_add_(0, ids, torch.ones_like(ids, dtype=history.dtype))
