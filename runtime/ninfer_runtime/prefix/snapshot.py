"""A kept prefix: where it lies in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_runtime.prefix.reuse import SHARED, SYSTEM
from ninfer_runtime.prefix.tree import Node


@dataclass(eq=False)
class Block:
    """A full page that snapshots of one history share: the `index`-th of its tokens. It lies on
    the device, on the host, or on both; nobody writes it any more. `uses` counts its snapshots."""

    index: int
    device: int | None = None
    host: int | None = None
    uses: int = 0
    used: int = 0


@dataclass(eq=False)
class PrefixSnapshot:
    """State behind the first `tokens` tokens; `node` lies one token deeper, as the MTP head's
    newest row reads the token that follows. What does not fill a page lies in the tail page of
    device slot `slot`, or in host page `host_tail` beside host slot `host_slot`."""

    node: Node
    tokens: int
    kind: str
    blocks: tuple[Block, ...]
    slot: int | None
    host_slot: int | None = None
    host_tail: int | None = None
    used: int = 0
    dropped: bool = field(default=False)

    @property
    def common(self) -> bool:
        """Whether others than the next turn of one conversation go on from here."""
        return self.kind in (SYSTEM, SHARED)
