"""How often every token occurs in texts: the ranking of a proposal head (V-120 to V-125)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.console import show_progress
from ninfer_tools.convert.corpus_text import CorpusFile
from ninfer_tools.convert.tokenizer import load_tokenizer
from ninfer_tools.convert.whole_file import write_whole

# A batch is tokenised in parallel, and its tokens take some hundred times their bytes.
_BATCH_PIECES = 16


@dataclass(frozen=True)
class CorpusCounts:
    """Occurrences int64 [vocabulary rows], the texts they were counted in, and their number."""

    counts: NDArray[np.int64]
    files: tuple[CorpusFile, ...]

    @property
    def words(self) -> bytes:
        """The ranking file of these counts: one row of little-endian int64."""
        return self.counts.astype("<i8").tobytes()

    def as_record(self) -> dict[str, Any]:
        """Return what the report says; `sha256` is that of the ranking file."""
        return {
            "from": "corpus",
            "sha256": hashlib.sha256(self.words).hexdigest(),
            "tokens": int(self.counts.sum()),
            "distinct_tokens": int(np.count_nonzero(self.counts)),
            "files": [file.as_record() for file in self.files],
        }


def parse_corpora(items: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of `--ranking-corpus FILES`, given more than once or by commas."""
    # A name with a comma in it is a name when there is such a file.
    groups = [[item] if Path(item).exists() else item.split(",") for item in items]
    names = [name for group in groups for name in group]
    if "" in names:
        raise UsageError("--ranking-corpus has an empty name", got=",".join(items))
    return tuple(map(Path, names))


def check_corpora(paths: Sequence[Path]) -> int:
    """Return the bytes of all files; UsageError for the first that cannot be read."""
    return sum(CorpusFile(path).check() for path in paths)


def count_tokens(paths: Sequence[Path], tokenizer: bytes, vocabulary: int) -> CorpusCounts:
    """Count the tokens of texts as `tokenizer` (the content of tokenizer.json) cuts them.

    Raises UsageError without the tokenizers library, and NinferError naming file and place for
    what is no text, for an id past the `vocabulary` rows, and for texts without any token.
    """
    encoder = load_tokenizer(tokenizer, "--ranking-corpus", "convert")
    files = tuple(CorpusFile(path) for path in paths)
    counts = np.zeros(vocabulary, np.int64)
    with show_progress(check_corpora(paths), "counting tokens") as advance:
        for file in files:
            pieces = file.pieces(advance)
            while batch := list(islice(pieces, _BATCH_PIECES)):
                for item in encoder.encode_batch_fast(batch, add_special_tokens=False):
                    counts += _count(item.ids, vocabulary, file.path)
    if not counts.any():
        raise NinferError("the ranking corpus has no token", path=paths[0])
    return CorpusCounts(counts, files)


def save_ranking(counts: CorpusCounts, path: Path) -> None:
    """Write counts as a ranking file, never half of it."""
    try:
        write_whole(path, counts.words)
    except OSError as error:
        raise NinferError(f"cannot write the ranking: {error.strerror}", path=path) from None


def _count(ids: Sequence[int], vocabulary: int, path: Path) -> NDArray[np.int64]:
    found = np.bincount(np.array(ids, np.int64), minlength=vocabulary)
    if len(found) > vocabulary:
        raise NinferError(
            "tokenizer gives an id past the vocabulary", path=path, got=len(found) - 1,
            want=f"0 to {vocabulary - 1}",
        )  # fmt: skip
    return found
