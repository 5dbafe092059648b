"""Names of what drafts tokens. Needs no torch."""

from __future__ import annotations

from ninfer_formats.errors import UsageError

SPECULATORS = ("mtp",)


def require_speculator(name: str) -> None:
    """Raise UsageError, one line that names --spec mtp, for a speculator that there is not."""
    if name not in SPECULATORS:
        raise UsageError(
            "speculator is not available", got=name or "nothing",
            want=", ".join(SPECULATORS), remedy="use --spec mtp",
        )  # fmt: skip
