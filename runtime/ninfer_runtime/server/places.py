"""Names of places in a request: the client's for those of the one form that is prepared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ninfer_runtime.server.api_error import ApiError


@contextmanager
def naming(places: Mapping[str, str]) -> Iterator[None]:
    """Give refusals the client's names: `places` has them by the place they stand for, which may
    be part of a longer one."""
    try:
        yield
    except ApiError as error:
        renamed = rename_place(error.param, places)
        if error.param is None or renamed is None:
            raise
        message = error.message.replace(error.param, renamed)
        raise dataclasses.replace(error, message=message, param=renamed) from None


def rename_place(place: str | None, places: Mapping[str, str]) -> str | None:
    """Return the client's name of a place, None when it has no other."""
    if place is None:
        return None
    for end in range(len(place), 0, -1):
        if end < len(place) and place[end] not in ".[":
            continue
        found = places.get(place[:end])
        if found is not None:
            # What lies deeper has other names, or none.
            return found
    return None
