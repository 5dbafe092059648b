"""Errors of the format package: what, where, got and wanted, and the next command."""

from __future__ import annotations

import os

# Text from a file may hold terminal escapes and end of line; messages stay one plain line.
_MAX_SHOWN = 160
# Lists of missing objects are given in full: up to a few hundred thousand names.
_MAX_WHAT = 20_000_000


def printable(text: object, limit: int = _MAX_SHOWN) -> str:
    """Return `text` on one line without control characters, shortened to `limit` characters."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in str(text)[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


class NinferError(Exception):
    """A problem with a message for people; `exit_code` is what a command returns for it."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        where: str | None = None,
        got: object = None,
        want: object = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.path, self.where = what, path, where
        self.got, self.want, self.remedy = got, want, remedy
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{printable(os.fspath(self.path), 400)}: " if self.path is not None else ""
        if self.where:
            text += f"{printable(self.where, 300)}: "
        text += printable(self.what, _MAX_WHAT)
        facts = []
        if self.got is not None:
            facts.append(f"got {printable(self.got, 400)}")
        if self.want is not None:
            facts.append(f"want {printable(self.want, 400)}")
        if facts:
            text += f" ({', '.join(facts)})"
        if self.remedy:
            text += f"; {printable(self.remedy, 1000)}"
        return text


class ArtifactError(NinferError):
    """The file is a `.ninfer` artifact, but broken or not usable as asked."""


class ForeignFileError(ArtifactError):
    """The file is not a `.ninfer` artifact at all."""

    exit_code = 2


class UsageError(NinferError):
    """The call itself cannot be carried out: bad option, missing path, wrong combination."""

    exit_code = 2


class NumericError(NinferError):
    """Values that a numeric format cannot hold, or stored words that are not legal in it."""
