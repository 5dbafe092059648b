"""Log probabilities of emitted tokens, for requests that asked for them."""

from __future__ import annotations

from ninfer_runtime.engine.landing import Landing
from ninfer_runtime.engine.request import TokenScore
from ninfer_runtime.engine.sequence import Sequence


def read_scores(landing: Landing, sequence: Sequence, count: int) -> tuple[TokenScore, ...]:
    """Return the scores of a sequence's first `count` tokens, none when it did not ask."""
    wanted = sequence.request.logprobs
    if wanted is None or landing.scores is None:
        return ()
    ids, logits, sums, chosen = landing.scores
    begin = sequence.lane * landing.tokens.shape[1]
    scores = []
    for column in range(count):
        row = begin + column
        total = float(sums[row])
        top = zip(ids[row, :wanted].tolist(), logits[row, :wanted].tolist(), strict=True)
        scores.append(
            TokenScore(
                float(chosen[sequence.lane, column]) - total,
                tuple((id, value - total) for id, value in top),
            )
        )
    return tuple(scores)
