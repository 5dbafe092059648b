"""Prompts as sequences of integers that are equal where everything the model sees is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from ninfer_runtime.engine.request import MediaSpan

# Media that are remembered by number. A forgotten one gets another number: a miss, never a hit.
_MOST_NAMES = 4096
_NUMBER_SHIFT = 32


class MediaNames:
    """Numbers from 1 for digests; none is ever given twice."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._next = 1

    def number(self, digest: bytes) -> int:
        found = self._numbers.pop(digest, None)
        if found is None:
            found = self._next
            self._next += 1
        self._numbers[digest] = found
        if len(self._numbers) > _MOST_NAMES:
            self._numbers.popitem(last=False)
        return found

    def encode(self, ids: Sequence[int], spans: Sequence[MediaSpan]) -> np.ndarray:
        """Return int64 [tokens]: token ids, with the number of their medium above bit 32.

        Rotary positions follow from these: the digest of a medium names its grid too.
        """
        symbols = np.array(ids, dtype=np.int64)
        for span in spans:
            symbols[span.begin : span.end] += self.number(span.digest) << _NUMBER_SHIFT
        return symbols
