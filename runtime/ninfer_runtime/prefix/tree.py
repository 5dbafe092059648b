"""A tree of prompts that share their beginnings: one node where they part or a snapshot lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ninfer_runtime.prefix.snapshot import PrefixSnapshot


class Node:
    """`symbols` lead from the parent here, `depth` symbols from the root."""

    __slots__ = ("children", "depth", "parent", "snapshot", "symbols")

    def __init__(self, parent: Node | None, symbols: np.ndarray) -> None:
        self.parent, self.symbols = parent, symbols
        self.depth: int = symbols.size + (parent.depth if parent is not None else 0)
        self.children: dict[int, Node] = {}
        self.snapshot: PrefixSnapshot | None = None


@dataclass(frozen=True)
class Walk:
    """How far a prompt goes along the tree: `matched` symbols agree; `differs` says that the tree
    goes on otherwise there. `snapshots` lie on the way, the deepest last."""

    matched: int
    differs: bool
    snapshots: tuple[PrefixSnapshot, ...]


class PrefixTree:
    """Lookup compares every symbol of a prompt at most twice."""

    def __init__(self) -> None:
        self.root = Node(None, np.zeros(0, dtype=np.int64))

    def walk(self, symbols: np.ndarray) -> Walk:
        node, found = self.root, []
        while True:
            if node.snapshot is not None:
                found.append(node.snapshot)
            rest = symbols[node.depth :]
            child = node.children.get(int(rest[0])) if rest.size else None
            if child is None:
                differs = bool(rest.size and node.children)
                return Walk(node.depth, differs, tuple(found))
            common = count_common(child.symbols, rest)
            if common < child.symbols.size:
                return Walk(node.depth + common, common < rest.size, tuple(found))
            node = child

    def reach(self, symbols: np.ndarray) -> Node:
        """Return the node at the end of `symbols`, made if it is not there."""
        node = self.root
        while node.depth < symbols.size:
            rest = symbols[node.depth :]
            child = node.children.get(int(rest[0]))
            if child is None:
                child = Node(node, rest.copy())
                node.children[int(rest[0])] = child
                return child
            common = count_common(child.symbols, rest)
            node = child if common == child.symbols.size else _split(child, common)
        return node

    def prune(self, node: Node) -> None:
        """Remove a node that holds nothing, and whatever was there for its sake."""
        while node.parent is not None and node.snapshot is None and not node.children:
            parent = node.parent
            del parent.children[int(node.symbols[0])]
            node = parent
        if node.parent is not None and node.snapshot is None and len(node.children) == 1:
            (child,) = node.children.values()
            child.symbols = np.concatenate((node.symbols, child.symbols))
            child.parent = node.parent
            node.parent.children[int(child.symbols[0])] = child


def count_common(first: np.ndarray, second: np.ndarray) -> int:
    """Return how many symbols two sequences begin with alike."""
    size = min(first.size, second.size)
    unequal = np.flatnonzero(first[:size] != second[:size])
    return int(unequal[0]) if unequal.size else size


def _split(node: Node, length: int) -> Node:
    """Return a new node `length` symbols behind the parent of `node`, between the two."""
    assert node.parent is not None
    upper = Node(node.parent, node.symbols[:length].copy())
    node.parent.children[int(upper.symbols[0])] = upper
    node.symbols, node.parent = node.symbols[length:].copy(), upper
    upper.children[int(node.symbols[0])] = node
    return upper
