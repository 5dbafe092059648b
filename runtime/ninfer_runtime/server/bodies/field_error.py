"""What validators of bodies raise when a code says more than the value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


class FieldError(ValueError):
    """A field is refused; `code` is the error's code, `inner` a place below the field."""

    def __init__(self, message: str, code: str = "invalid_value", inner: str = "") -> None:
        super().__init__(message)
        self.code, self.inner = code, inner


def check_kind(data: Any, known: Collection[str], unsupported: Collection[str], want: str) -> None:
    """Raise FieldError for a part whose `type` is none of `known`; of the `unsupported` ones it
    says so, and what to send instead. A part of another form is left to its fields."""
    kind = data.get("type") if isinstance(data, Mapping) else None
    if kind in unsupported:
        message = f"{kind!r} is not supported, want {want}"
        raise FieldError(message, "modality_not_supported", "type")
    if isinstance(kind, str) and kind not in known:
        raise FieldError(f"{kind[:80]!r} is not one of {', '.join(known)}", inner="type")
