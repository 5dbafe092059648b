"""Results of a round on their way to the host."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ninfer_runtime.engine.round import Emission
from ninfer_runtime.engine.sequence import Sequence


@dataclass(frozen=True)
class Landing:
    """Copies of a round's results on the host, complete once `wait` returns.

    `running` are the sequences that took part; `scores` (candidate ids, logits, log sums, logits
    of the tokens) are there when one of them asked for log probabilities.
    """

    running: tuple[Sequence, ...]
    tokens: torch.Tensor
    emitted: torch.Tensor
    flags: torch.Tensor
    scores: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None
    event: torch.cuda.Event | None

    def without(self, sequence: Sequence) -> Landing:
        """Return the landing as if `sequence` had not taken part."""
        return replace(self, running=tuple(s for s in self.running if s is not sequence))

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()


def land(emission: Emission, running: tuple[Sequence, ...]) -> Landing:
    """Start copying; the device's buffers may be written again by whatever is launched next."""
    found = emission.candidates
    wanted = any(sequence.request.logprobs is not None for sequence in running)
    scores = (found.ids, found.logits, found.log_sum, emission.logits) if wanted else ()
    copies = [
        _to_host(tensor) for tensor in (emission.tokens, emission.emitted, emission.flags, *scores)
    ]
    event = None
    if emission.tokens.is_cuda:
        event = torch.cuda.Event()
        event.record()
    kept = (copies[3], copies[4], copies[5], copies[6]) if wanted else None
    return Landing(running, copies[0], copies[1], copies[2], kept, event)


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor.clone()
    # The caching allocator of pinned memory keeps a block until the copy into it is done.
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
