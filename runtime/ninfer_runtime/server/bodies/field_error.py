"""What validators of bodies raise when a code says more than the value."""

from __future__ import annotations


class FieldError(ValueError):
    """A field is refused; `code` is the error's code, `inner` a place below the field."""

    def __init__(self, message: str, code: str = "invalid_value", inner: str = "") -> None:
        super().__init__(message)
        self.code, self.inner = code, inner
