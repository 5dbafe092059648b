"""Where an output set goes, and every reason to refuse it before the first byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import UsageError
from ninfer_formats.work_folder import hidden_name, is_plain_name

# Room for the work folder, its plan and the file system's own bookkeeping.
SPACE_SLACK = 1 << 20
_NAME_MAX = 255


@dataclass(frozen=True)
class OutputTarget:
    """An output set: `path` as given, its real `parent` folder, names and exact sizes in bytes."""

    path: Path
    parent: Path
    sizes: dict[str, int]
    force: bool
    replaces: tuple[str, ...]

    @property
    def entry(self) -> str:
        return self.path.name

    @property
    def parts(self) -> list[str]:
        return [name for name in self.sizes if name != self.entry]

    @property
    def needed_bytes(self) -> int:
        return sum(self.sizes.values()) + SPACE_SLACK

    def free_bytes(self) -> int:
        """Return the bytes an ordinary user can still write to this file system."""
        found = os.statvfs(self.parent)
        return found.f_bavail * found.f_frsize

    def existing(self) -> list[str]:
        """Return the names of the set, then of `replaces`, that exist in any form."""
        names = dict.fromkeys((self.entry, *self.parts, *self.replaces))
        return [name for name in names if os.path.lexists(self.parent / name)]


def resolve_target(
    entry_path: str | os.PathLike[str],
    sizes: Mapping[str, int],
    *,
    force: bool = False,
    replaces: Iterable[str] = (),
) -> OutputTarget:
    """Return the target after checking its names and its folder; UsageError otherwise."""
    path = Path(entry_path)
    replaced = tuple(replaces)
    for name in (path.name, *sizes, *replaced):
        if not is_plain_name(name):
            raise UsageError("not a file name", path=path, got=repr(name))
    if path.name not in sizes:
        raise UsageError("the entry is not among the output files", path=path, got=list(sizes))
    if any(size < 0 for size in sizes.values()):
        raise UsageError("a file size is negative", path=path, got=dict(sizes))
    parent = _check_folder(path)
    _check_name_lengths(path, parent, sizes)
    return OutputTarget(path, parent, dict(sizes), force, replaced)


def _check_folder(path: Path) -> Path:
    try:
        parent = Path(os.path.realpath(path.parent))
        mode = parent.stat().st_mode
    except FileNotFoundError:
        raise UsageError(
            "the output folder does not exist",
            path=path.parent,
            remedy="create it, or choose another output path",
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError("the output folder cannot be used", path=path.parent, got=error) from error
    if not stat.S_ISDIR(mode):
        raise UsageError(
            "the output folder is not a folder",
            path=path.parent,
            remedy="choose another output path",
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(
            "the output folder is not writable",
            path=path.parent,
            remedy="choose another output path",
        )
    return parent


def _check_name_lengths(path: Path, parent: Path, names: Iterable[str]) -> None:
    try:
        longest = os.pathconf(parent, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):
        longest = _NAME_MAX
    for name in (*names, hidden_name(path.name)):
        if len(os.fsencode(name)) > longest:
            raise UsageError(
                "the file name is too long for this file system",
                path=path,
                got=f"{len(os.fsencode(name))} bytes for {name}",
                want=f"at most {longest} bytes",
                remedy="choose a shorter name",
            )


def refuse_occupied(target: OutputTarget) -> None:
    """Raise UsageError when a final name exists and must not, or cannot, be replaced."""
    for name in target.existing():
        final = target.parent / name
        mode = final.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            kind = "folder" if stat.S_ISDIR(mode) else "device, pipe or socket"
            raise UsageError(
                f"the output path is a {kind}", path=final, remedy="choose another output path"
            )
        if not target.force and name in target.sizes:
            raise UsageError(
                "the output path exists",
                path=final,
                remedy="choose another output path or pass --force",
            )


def refuse_full_disk(target: OutputTarget) -> None:
    """Raise UsageError when the set and its slack do not fit into the free space."""
    free, needed = target.free_bytes(), target.needed_bytes
    if free < needed:
        raise UsageError(
            "not enough free disk space",
            path=target.path,
            got=f"{free} bytes ({free / 2**30:.2f} GiB) free",
            want=f"{needed} bytes ({needed / 2**30:.2f} GiB)",
            remedy="free disk space or choose another output path",
        )
