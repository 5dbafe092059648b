"""The tree of prompts against the plainest search."""

from __future__ import annotations

import random

import numpy as np

from ninfer_runtime.prefix.host_memory import MOST_SLOTS, split_host
from ninfer_runtime.prefix.snapshot import PrefixSnapshot
from ninfer_runtime.prefix.symbols import MediaNames
from ninfer_runtime.prefix.transfers import find_runs
from ninfer_runtime.prefix.tree import PrefixTree


def common(first, second):
    count = 0
    while count < min(len(first), len(second)) and first[count] == second[count]:
        count += 1
    return count


def count_nodes(node):
    return 1 + sum(map(count_nodes, node.children.values()))


def test_walks_find_what_a_plain_search_finds():
    """PX-1, PX-7: among random prompts of few symbols, with some removed again."""
    random.seed(3)
    tree, kept = PrefixTree(), {}

    def draw():
        return tuple(random.choice((1, 2, 1 << 33)) for _ in range(random.randint(1, 9)))

    for _ in range(3000):
        key = draw()
        if random.random() < 0.6:
            node = tree.reach(np.array(key))
            assert node.depth == len(key)
            if node.snapshot is None:
                node.snapshot = PrefixSnapshot(node, len(key) - 1, "answer", (), 0)
            assert kept.setdefault(key, node.snapshot) is node.snapshot
        elif kept:
            node = kept.pop(random.choice(list(kept))).node
            node.snapshot = None
            tree.prune(node)
        walk, prompt = tree.walk(np.array(key)), key
        assert walk.matched == max((common(prompt, other) for other in kept), default=0)
        longest = [other for other in kept if common(prompt, other) == walk.matched]
        assert walk.differs == (
            walk.matched < len(prompt) and any(len(other) > walk.matched for other in longest)
        )
        way = sorted((o for o in kept if common(prompt, o) == len(o)), key=len)
        assert walk.snapshots == tuple(kept[other] for other in way)
        assert count_nodes(tree.root) <= 2 * len(kept) + 1
    for snapshot in kept.values():
        snapshot.node.snapshot = None
        tree.prune(snapshot.node)
    assert not tree.root.children


def test_a_forgotten_medium_gets_a_new_number():
    """PX-1: a number never names two media."""
    names = MediaNames()
    first = names.number(b"0")
    numbers = {names.number(str(n).encode()) for n in range(1, 5000)}
    assert names.number(b"0") not in numbers | {first}


def test_runs_are_stretches_where_both_sides_count_up():
    assert list(find_runs([], [])) == []
    assert list(find_runs([3, 4, 5, 9, 10, 2], [0, 1, 2, 3, 5, 6])) == [
        (3, 0, 3), (9, 3, 1), (10, 5, 1), (2, 6, 1),
    ]  # fmt: skip


def test_memory_of_the_host_is_split_between_states_and_pages():
    """PX-6: half each, 13 states first, nothing beyond use, nothing below one of each."""
    assert split_host(1000, 600, 500, 10) == (0, 0)
    assert split_host(2600, 100, 10, 10) == (13, 130)
    assert split_host(2000, 100, 10, 100) == (13, 70)
    # No attention layers: pages take nothing. No recurrent layers: states take nothing.
    assert split_host(2600, 100, 0, 10) == (13, 143)
    assert split_host(2600, 0, 10, 10) == (48, 255)
    assert split_host(4000, 100, 10, 100) == (20, 200)
    assert split_host(10**9, 100, 10, 5) == (MOST_SLOTS, MOST_SLOTS * 6)
    for room in range(700, 9000, 77):
        slots, pages = split_host(room, 150, 60, 1000)
        assert slots * 150 + pages * 60 <= room
