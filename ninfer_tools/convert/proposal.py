"""The shortlist of tokens of an indexed proposal head (rules V-20 to V-23)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.family import PROPOSAL_ROWS

LEAST_VOCABULARY = 65536
_EVEN_ROWS = 128


def default_rows(vocabulary: int, tokens: int) -> int:
    """Return the rows of a head nobody gave a size: 0 for small vocabularies, 131,072, or half of
    the tokens (whole 128) where there are not more than 131,072."""
    if vocabulary < LEAST_VOCABULARY:
        return 0
    return PROPOSAL_ROWS if tokens > PROPOSAL_ROWS else tokens // 2 // _EVEN_ROWS * _EVEN_ROWS


def read_counts(path: Path, vocabulary: int, tokens: int) -> NDArray[np.int64]:
    """Return int64 [tokens] of a ranking file: little-endian int64 [rows, vocabulary], row 0."""
    try:
        size = path.stat().st_size
        if not size or size % (8 * vocabulary):
            raise NinferError(
                "ranking does not fit the vocabulary", path=path, got=f"{size} bytes",
                want=f"a multiple of {8 * vocabulary} (int64 [rows, {vocabulary}])",
            )  # fmt: skip
        counts = np.fromfile(path, "<i8", vocabulary)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", path=path) from None
    if (counts < 0).any():
        raise NinferError("ranking has a negative count", path=path, got=int(counts.min()))
    return counts[:tokens]


def choose_tokens(
    counts: NDArray[np.int64], special: Collection[int], rows: int
) -> NDArray[np.int32]:
    """Return the token ids int32 [rows] of a shortlist.

    Most frequent first, lower id first among equals; special tokens are always in and come last
    among equals. With counts all zero this is the lowest ids, then the special ones.
    """
    tokens = len(counts)
    forced = np.array(sorted(special), np.int64)
    if not max(1, len(forced)) <= rows <= tokens:
        want = f"{max(1, len(forced))} (the special tokens) to {tokens} (all tokens)"
        raise UsageError("impossible number of proposal rows", got=rows, want=want)
    order = np.argsort(-counts, kind="stable")
    free = order[~np.isin(order, forced)]
    picked = np.concatenate([free[: rows - len(forced)], forced])
    return picked[np.argsort(-counts[picked], kind="stable")].astype(np.int32)
