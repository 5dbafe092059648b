"""The shortlist of tokens of an indexed proposal head (rules V-20 to V-24, V-120 to V-126)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.family import PROPOSAL_ROWS
from ninfer_formats.output_target import refuse_occupied, resolve_target
from ninfer_tools.convert.ranking_corpus import (
    CorpusCounts,
    check_corpora,
    count_tokens,
    parse_corpora,
    save_ranking,
)
from ninfer_tools.convert.regular_file import open_regular

LEAST_VOCABULARY = 65536
_EVEN_ROWS = 128
_UNCOUNTED = "texts of the ranking are counted when the conversion runs"
_UNRANKED = "the proposal head has no ranking: it holds the lowest ids and all special tokens"


@dataclass(frozen=True)
class Ranking:
    """Counts int64 [tokens] that order a proposal head, and where they come from.

    `record` is for the report; its `sha256` that of the ranking file they have or would make.
    """

    counts: NDArray[np.int64]
    record: dict[str, Any]
    notices: tuple[str, ...] = ()
    corpus: CorpusCounts | None = None

    def save(self, path: Path) -> None:
        """Write what was counted as a ranking file."""
        if self.corpus is not None:
            save_ranking(self.corpus, path)

    def as_provenance(self) -> dict[str, str]:
        """Return what artifacts say: the same whether counts were read or made."""
        if "sha256" not in self.record:
            return {}
        # A plan has the size of what it plans, so something stands for what is not counted yet.
        return {"ranking_sha256": self.record["sha256"] or "0" * 64}


def check_ranking(
    file: Path | None, corpora: Sequence[str], saved: Path | None, no_proposal: bool, force: bool
) -> tuple[Path, ...]:
    """Return the files of `--ranking-corpus`; UsageError where options contradict each other."""
    if corpora and (file is not None or no_proposal):
        other = "--no-proposal" if no_proposal else "--ranking"
        raise UsageError(f"{other} contradicts --ranking-corpus")
    if saved is not None:
        if not corpora:
            raise UsageError("--save-ranking needs --ranking-corpus")
        refuse_occupied(resolve_target(saved, {saved.name: 0}, force=force))
    return parse_corpora(corpora)


def rank_tokens(
    file: Path | None,
    corpora: Sequence[Path],
    tokenizer: bytes | None,
    vocabulary: int,
    tokens: int,
    count: bool,
) -> Ranking:
    """Return the ranking by a file, by texts, or by id; at most one of the two is given.

    `vocabulary` is the number of embedding rows, `tokens` that of token ids. Without `count`,
    texts are only looked at: counts are then zero.
    """
    if file is not None:
        counts = read_counts(file, vocabulary, tokens)
        with open_regular(file) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        return Ranking(counts, {"from": "file", "sha256": digest, "file": file.name})
    zeros = np.zeros(tokens, np.int64)
    if not corpora:
        return Ranking(zeros, {"from": "token ids"}, (_UNRANKED,))
    if tokenizer is None:
        raise UsageError("--ranking-corpus needs a tokenizer.json in the checkpoint")
    if not count:
        check_corpora(corpora)
        names = [{"file": path.name} for path in corpora]
        record = {"from": "corpus", "sha256": None, "files": names}
        return Ranking(zeros, record, (_UNCOUNTED,))
    found = count_tokens(corpora, tokenizer, vocabulary)
    return Ranking(found.counts[:tokens], found.as_record(), (), found)


def default_rows(vocabulary: int, tokens: int) -> int:
    """Return the rows of a head nobody gave a size: 0 for small vocabularies, 131,072, or half of
    the tokens (whole 128) where there are not more than 131,072."""
    if vocabulary < LEAST_VOCABULARY:
        return 0
    return PROPOSAL_ROWS if tokens > PROPOSAL_ROWS else tokens // 2 // _EVEN_ROWS * _EVEN_ROWS


def read_counts(path: Path, vocabulary: int, tokens: int) -> NDArray[np.int64]:
    """Return int64 [tokens] of a ranking file: little-endian int64 [rows, vocabulary], row 0."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size or size % (8 * vocabulary):
            raise NinferError(
                "ranking does not fit the vocabulary", path=path, got=f"{size} bytes",
                want=f"a multiple of {8 * vocabulary} (int64 [rows, {vocabulary}])",
            )  # fmt: skip
        try:
            counts = np.fromfile(file, "<i8", vocabulary)
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
