"""A refusal or failure as a client sees it, before an API gives it its own shape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ApiError(Exception):
    """`status` of HTTP; `code` for programs, `message` for people; `param` is the field at fault.
    `retry_after` are seconds after which another attempt makes sense."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the refusal of a request that is wrong whenever it is sent."""
    return ApiError(400, message, code, param)
