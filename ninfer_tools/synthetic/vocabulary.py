"""The vocabulary of the family: ordinary tokens, then 33 added ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ninfer_formats.errors import UsageError

# (content, special): tokens that are not special survive when special tokens are skipped.
ADDED_TOKENS: tuple[tuple[str, bool], ...] = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", False),
    ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False),
    ("<|repo_name|>", False),
    ("<|file_sep|>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
    ("<|audio_start|>", True),
    ("<|audio_end|>", True),
    ("<tts_pad>", True),
    ("<tts_text_bos>", True),
    ("<tts_text_eod>", True),
    ("<tts_text_bos_single>", True),
    ("<|audio_pad|>", True),
)
# One token for each byte is what makes every text encodable.
SMALLEST = 256 + len(ADDED_TOKENS)


@dataclass(frozen=True)
class Vocabulary:
    """`tokens` ids in all; the last 33 are the added tokens. The default is the family's."""

    tokens: int = 248077

    def __post_init__(self) -> None:
        if self.tokens < SMALLEST:
            raise UsageError("vocabulary is too small", got=self.tokens, want=f">= {SMALLEST}")

    @property
    def base_tokens(self) -> int:
        """How many ordinary tokens there are; also the id of the first added token."""
        return self.tokens - len(ADDED_TOKENS)

    def added_id(self, content: str) -> int:
        """Return the id of an added token; KeyError for any other text."""
        ids = {name: self.base_tokens + i for i, (name, _) in enumerate(ADDED_TOKENS)}
        return ids[content]

    def special_ids(self) -> tuple[int, ...]:
        """Return the ascending ids of the added tokens that are special."""
        return tuple(self.base_tokens + i for i, (_, special) in enumerate(ADDED_TOKENS) if special)

    def choose_ids(self, rows: int, seed: np.random.SeedSequence) -> np.ndarray:
        """Return int64 [rows]: distinct ascending ids, all special ids among them."""
        special = np.array(self.special_ids())
        if not special.size <= rows <= self.tokens:
            raise UsageError(
                "proposal rows do not fit the vocabulary",
                got=rows,
                want=f"{special.size} to {self.tokens}",
            )
        ordinary = np.setdiff1d(np.arange(self.tokens), special)
        generator = np.random.Generator(np.random.SFC64(seed))
        chosen = generator.permutation(ordinary)[: rows - special.size]
        return np.sort(np.concatenate([chosen, special]))
