"""Versions of the installed packages that a result depends on."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version


def find_versions(*packages: str) -> dict[str, str]:
    """Return package -> version, without those that are not installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
