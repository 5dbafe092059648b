"""Token ids into text while they come, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from ninfer_runtime.frontend.tokenizer import Tokenizer


class TextStream:
    """Decodes ids in any portions; all texts joined equal `Tokenizer.decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special if skip_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Return the text that `ids` complete; bytes of an unfinished character are kept."""
        kept = (id for id in ids if id not in self._skipped)
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, kept)))

    def finish(self) -> str:
        """Return what an unfinished character at the end becomes."""
        return self._decoder.decode(b"", final=True)
