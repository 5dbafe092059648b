"""Where prompts of one conversation, and of others with the same beginning, part."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_runtime.frontend.tokenizer import Tokenizer

TURN_START = "<|im_start|>"
_SYSTEM = "system\n"


def find_boundaries(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[int, ...]:
    """Return token indices, ascending: the end of a system turn, with its tools, that begins the
    prompt, and the opener of the answer.

    Turns are told by their control token, which no client can spell (FE-2, FE-6).
    """
    opener = tokenizer.added.get(TURN_START)
    starts = [index for index, id in enumerate(ids) if id == opener]
    if not starts:
        return ()
    found = {starts[-1]}
    if len(starts) > 1 and starts[0] == 0:
        head = tokenizer.decode(ids[1 : min(starts[1], 16)])
        if head.startswith(_SYSTEM):
            found.add(starts[1])
    return tuple(sorted(index for index in found if index > 0))
