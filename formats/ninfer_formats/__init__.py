"""The .ninfer container: read, write and understand artifacts of versions 1, 2 and 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact, open_artifact

__all__ = ["Artifact", "open_artifact"]


def __getattr__(name: str) -> Any:
    # The reader needs numpy; `ninfer inspect --magic` and the error types do not.
    if name in __all__:
        from ninfer_formats import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
