"""The hidden folder in which an output set is written: its name, its contents and its plan."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.placement import sync_folder

# What follows the entry's name: ".ninfer-" and 16 hexadecimal digits.
_SUFFIX = re.compile(r"\.ninfer-[0-9a-f]{16}")


@dataclass(frozen=True)
class Plan:
    """What a publication is about to name: entry, and (inode, bytes, mtime ns) of each file."""

    entry: str
    files: dict[str, tuple[int, int, int]]

    @property
    def parts(self) -> list[str]:
        return [name for name in self.files if name != self.entry]


@dataclass(frozen=True)
class WorkFolder:
    """`.<entry>.ninfer-<16 hex>/`: `lock`, `plan.json`, `new/` (written), `old/` (set aside)."""

    path: Path
    entry: str

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    def new(self, name: str) -> Path:
        return self.path / "new" / name

    def old(self, name: str) -> Path:
        return self.path / "old" / name

    def final(self, name: str) -> Path:
        return self.path.parent / name

    def backups(self) -> list[str]:
        """Return the names set aside in `old/`, the entry last."""
        old = self.path / "old"
        if old.is_symlink() or not old.is_dir():
            return []
        names = sorted(item.name for item in old.iterdir())
        return sorted(names, key=lambda name: name == self.entry)

    def write_plan(self, names: list[str]) -> None:
        """Record the written files durably; only then may any final name change."""
        facts = {name: file_facts(self.new(name)) for name in names}
        draft = self.path / "plan.draft"
        with draft.open("w", encoding="utf-8") as file:
            json.dump({"entry": self.entry, "files": facts}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.plan)
        sync_folder(self.path)

    def read_plan(self) -> Plan | None:
        """Return the plan, or None when none was recorded or it is not one of ours."""
        try:
            record = json.loads(self.plan.read_text(encoding="utf-8"))
            files = {name: _facts(value) for name, value in record["files"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        if record.get("entry") != self.entry or not all(is_plain_name(name) for name in files):
            return None
        return Plan(self.entry, files)

    def remove(self) -> None:
        """Delete the folder and what this package put in it, the lock last; symlinks unfollowed."""
        for inner in (self.path / "new", self.path / "old"):
            if inner.is_symlink():
                inner.unlink()
            elif inner.exists():
                shutil.rmtree(inner)
        for file in (self.path / "plan.draft", self.plan, self.lock):
            file.unlink(missing_ok=True)
        # Something foreign inside is not ours to delete.
        with contextlib.suppress(OSError):
            self.path.rmdir()


def hidden_name(entry: str) -> str:
    """Return a fresh name for the work folder of `entry`."""
    return f".{entry}.ninfer-{secrets.token_hex(8)}"


def is_plain_name(name: object) -> bool:
    """Tell whether `name` names a file of a folder itself: no separator, not `.` or `..`."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")


def file_facts(path: Path) -> tuple[int, int, int]:
    """Return (inode, bytes, mtime in ns) of `path` itself, symlinks not followed."""
    found = path.lstat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _facts(value: list[int]) -> tuple[int, int, int]:
    inode, size, mtime = value
    return int(inode), int(size), int(mtime)


def find_work_folders(parent: Path, entry: str) -> list[WorkFolder]:
    """Return the work folders of `entry` in `parent`: real ones, this user's, with a lock."""
    prefix = f".{entry}"
    found = []
    with os.scandir(parent) as items:
        for item in items:
            if not item.name.startswith(prefix) or not _SUFFIX.fullmatch(item.name, len(prefix)):
                continue
            if item.is_dir(follow_symlinks=False) and _is_ours(item):
                found.append(WorkFolder(parent / item.name, entry))
    return sorted(
        (folder for folder in found if is_regular_file(folder.lock)), key=lambda f: f.path
    )


def _is_ours(item: os.DirEntry[str]) -> bool:
    # A folder planted by somebody else must not direct what this user deletes.
    try:
        owner = item.stat(follow_symlinks=False).st_uid
    except OSError:
        return False
    return not hasattr(os, "geteuid") or owner == os.geteuid()


def is_regular_file(path: Path) -> bool:
    """Tell whether `path` itself is a regular file, symlinks not followed."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
