"""Under which prefixes a checkpoint stores its components (rules S-40 and S-41)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

TEXT = ("model.language_model.", "language_model.model.", "model.")
HEAD = ("", "language_model.", "model.language_model.", "model.")
VISION = ("model.visual.", "visual.", "model.vision_tower.", "vision_tower.")
MTP = ("mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp.")
_TEXT_PARTS = ("embed_tokens.", "layers.")


@dataclass(frozen=True)
class Prefixes:
    """The prefix of each component, None where no tensor has a known one.

    `texts` lists every text prefix that was found: more than one is an ambiguity. `seen` names
    the commonest beginnings of tensor names, for messages.
    """

    text: str | None
    head: str
    vision: str | None
    mtp: str | None
    texts: tuple[str, ...]
    seen: tuple[str, ...]


def find_prefixes(names: Iterable[str]) -> Prefixes:
    """Return the prefixes under which tensors of these names are stored."""
    beginnings = Counter(re.split(r"(?<=\.)(?=\d)", name, maxsplit=1)[0] for name in names)
    # The text up to the first number, or the whole name: few distinct ones however many tensors.
    texts = tuple(p for p in TEXT if _any(beginnings, tuple(p + part for part in _TEXT_PARTS)))
    return Prefixes(
        text=texts[0] if texts else None,
        head=next((p for p in HEAD if _any(beginnings, (f"{p}lm_head.",))), ""),
        vision=next((p for p in VISION if _any(beginnings, (p,))), None),
        mtp=next((p for p in MTP if _any(beginnings, (p,))), None),
        texts=texts,
        seen=tuple(beginning for beginning, _ in beginnings.most_common(4)),
    )


def _any(beginnings: Iterable[str], starts: tuple[str, ...]) -> bool:
    return any(beginning.startswith(starts) for beginning in beginnings)
