"""The keys that clients may send."""

from __future__ import annotations

import os
from pathlib import Path

from ninfer_tools.serve_session.options import ServeOptions


def gather_keys(options: ServeOptions) -> tuple[str, ...]:
    """Return all keys. `@FILE`, and a value with a path separator that names a file, stand for
    the keys of that file: a path is no key that anybody means. StartupError for a file without.
    """
    from ninfer_runtime.server.auth import read_keys

    keys: list[str] = []
    for value in options.api_key:
        file = _name_file(value)
        keys += [value] if file is None else read_keys(file)
    if options.api_key_file is not None:
        keys += read_keys(options.api_key_file)
    return tuple(dict.fromkeys(keys))


def _name_file(value: str) -> Path | None:
    if value.startswith("@"):
        return Path(value[1:])
    if os.sep in value:
        try:
            return Path(value) if Path(value).is_file() else None
        except (OSError, ValueError):
            return None
    return None
