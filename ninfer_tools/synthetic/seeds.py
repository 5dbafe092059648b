"""Seeds of everything that is drawn: from a key of numbers, independent of any order."""

from __future__ import annotations

import hashlib

import numpy as np


def seed_sequence(key: tuple[int, ...]) -> np.random.SeedSequence:
    """Return the seed of a key.

    The key is hashed first: a plain SeedSequence pads with zeros, so that (1,) and (1, 0) would
    draw the same numbers.
    """
    text = ",".join(str(number) for number in key)
    return np.random.SeedSequence(_digest(text, 32))


def name_key(seed: int, name: str) -> tuple[int, int]:
    """Return the key of a named thing under a model's seed."""
    return seed, _digest(name, 8)


def divisor_name(site: str) -> str:
    """Return the name that decides the activation divisor of an input site."""
    return f"{site}/input_scale_divisor"


def _digest(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "little")
