"""Where a checkpoint lies: a local folder, or `OWNER/NAME@REVISION` on the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import UsageError

# What the hub itself allows in a name; `--` would be ambiguous in the shared cache.
_NAME = r"(?!.*(?:--|\.\.))[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}"
_REPOSITORY = re.compile(rf"{_NAME}/{_NAME}")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_REVISION = re.compile(r"(?!.*(?:\.\.|//|\\))[^\s/\x00-\x1f\x7f][^\s\x00-\x1f\x7f]{0,254}(?<!/)")
_FORM = "OWNER/NAME@REVISION"


@dataclass(frozen=True)
class HubReference:
    """A repository and a revision of it: a 40-digit commit, a branch or a tag."""

    repository: str
    revision: str

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, so that it always means the same bytes."""
        return is_commit(self.revision)

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def is_commit(revision: str) -> bool:
    """Tell whether a revision is a full commit: exactly 40 hexadecimal digits."""
    return _COMMIT.fullmatch(revision) is not None


def parse_reference(text: str) -> HubReference:
    """Return the reference `OWNER/NAME@REVISION`; UsageError says what is wrong with another text.

    A commit is taken in either case and kept in lower case.
    """
    repository, at, revision = text.partition("@")
    if not _REPOSITORY.fullmatch(repository):
        raise UsageError("not a repository of the hub", got=text, want=_FORM)
    if not at:
        raise UsageError(
            "the revision is missing",
            got=text,
            want=_FORM,
            remedy=f"write {text}@main for the newest one, or {text}@COMMIT to pin it",
        )
    if not _REVISION.fullmatch(revision):
        raise UsageError("not a revision", got=text, want="a commit, branch or tag after the @")
    return HubReference(repository, revision.lower() if is_commit(revision) else revision)


def parse_source(text: str) -> Path | HubReference:
    """Return the folder or the hub reference that `text` names; an existing folder wins.

    Raises UsageError for a file, for what can only be a path but does not exist, and for a
    malformed reference.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError("a file, not a checkpoint folder", path=path, want=f"a folder or {_FORM}")
    if "@" not in text or text.startswith(("/", ".", "~")):
        raise UsageError("no such folder", path=text, want=f"an existing folder or {_FORM}")
    return parse_reference(text)
