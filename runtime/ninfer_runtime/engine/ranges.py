"""What parameters of a request may be: one table for the command line, files and the engine.

Needs no torch.
"""

from __future__ import annotations

from numbers import Integral, Real

# Field of `Sampling` -> least and greatest value, both allowed (rule EN-8).
SAMPLING_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence": (-100.0, 100.0),
    "frequency": (-100.0, 100.0),
    "repetition": (0.01, 100.0),
    "seed": (0, 2**63 - 1),
}
INTEGERS = frozenset({"top_k", "seed"})


def in_range(field: str, value: object) -> bool:
    """Return whether a field of `Sampling` may be `value`: NaN, texts and truth values may not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    if field in INTEGERS and not isinstance(value, Integral):
        return False
    low, high = SAMPLING_RANGES[field]
    return low <= value <= high  # type: ignore[operator]
