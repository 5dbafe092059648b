"""The files of one commit: names, sizes and digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ninfer_formats.errors import NinferError


@dataclass(frozen=True)
class HubFile:
    """A file of a repository, `bytes` long. A large one has a SHA-256, a small one a git blob id.

    Both are None for a file known only from the local cache.
    """

    path: str
    bytes: int
    sha256: str | None = None
    git_blob: str | None = None

    @property
    def identity(self) -> str:
        """The digest that names exactly this content, in hexadecimal."""
        return self.sha256 or self.git_blob or ""


def read_tree(records: Iterable[Mapping[str, Any]]) -> Mapping[str, HubFile]:
    """Return path -> file from the hub's tree records, in the hub's order."""
    files = {}
    for record in records:
        lfs = record.get("lfs")
        name, size = str(record["path"]), int(lfs["size"] if lfs else record["size"])
        digest = str(lfs["oid"] if lfs else record["oid"]).lower()
        files[name] = (
            HubFile(name, size, sha256=digest) if lfs else HubFile(name, size, git_blob=digest)
        )
    return MappingProxyType(files)


def read_cached_tree(repository: str, commit: str) -> Mapping[str, HubFile] | None:
    """Return the listing that an earlier download left in the shared cache, None without one."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        found = get_cached_repo_tree(repository, revision=commit)
    except CachedRepoTreeNotFoundError:
        return None
    files = {}
    for item in found:
        if item.lfs is None:
            files[item.path] = HubFile(item.path, item.size, git_blob=item.blob_id)
        else:
            files[item.path] = HubFile(item.path, item.lfs.size, sha256=item.lfs.sha256)
    return MappingProxyType(files)


def read_folder(folder: Path) -> Mapping[str, HubFile]:
    """Return path -> file of what lies in a cached snapshot folder; digests are not known."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}
    return MappingProxyType({name: HubFile(name, size) for name, size in files.items()})


def match_names(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that equal or match a pattern, in the order of `names`.

    As in the hub client, `*` also matches `/`.
    """
    wanted = tuple(patterns)
    return [name for name in names if any(fnmatchcase(name, item) for item in wanted)]


def name_some(names: Iterable[str], most: int = 10) -> str:
    """Return up to `most` names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more if listed else "none"


def require_plain(name: str, subject: str) -> None:
    """Raise NinferError for a repository path that would leave the folder it is written to."""
    from ninfer_formats.work_folder import is_plain_name

    if not all(is_plain_name(step) for step in name.split("/")):
        raise NinferError("the repository names a file outside of itself", where=subject, got=name)
