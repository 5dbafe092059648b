"""Python sources of the installed packages: the code part of the training text."""

from __future__ import annotations

import hashlib
import os
import site
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from conversation import ADDED_TOKENS

# Top-level names kept out of training.
HELD_OUT = {"networkx", "rich", "seaborn", "werkzeug"}
SKIPPED_FOLDERS = {"__pycache__", "_vendor", "vendor"}
SMALLEST, LARGEST = 400, 300_000


def find_sources(seed: int, megabytes: float) -> list[Path]:
    """Return files up to a total size, in an order fixed by the seed; never a held-out one."""
    return _choose(seed, megabytes, held_out=False)


def find_held_out(seed: int, megabytes: float = 6) -> list[Path]:
    """Return files of the installed packages that training leaves out."""
    return _choose(seed, megabytes, held_out=True)


def _choose(seed: int, megabytes: float, held_out: bool) -> list[Path]:
    paths = sysconfig.get_paths()
    roots = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    folders = [Path(root) for root in sorted(roots) if Path(root).is_dir()]
    found = [item for folder in folders for item in _walk(folder, held_out)]
    # Equal ranks stay in the order of the walk.
    found.sort(key=lambda item: _rank(seed, *item))
    chosen, total = [], 0
    for path, size in found:
        if total > megabytes * 1e6:
            break
        chosen.append(path)
        total += size
    return chosen


def _walk(root: Path, held_out: bool) -> Iterator[tuple[Path, int]]:
    for name, subfolders, files in os.walk(root):
        folder = Path(name)
        subfolders[:] = sorted(x for x in subfolders if x not in SKIPPED_FOLDERS)
        if folder == root:
            subfolders[:] = [x for x in subfolders if (x in HELD_OUT) is held_out]
            files = [] if held_out else files
        for file in sorted(x for x in files if x.endswith(".py")):
            size = (folder / file).stat().st_size
            if SMALLEST < size < LARGEST:
                yield folder / file, size


def _rank(seed: int, path: Path, size: int) -> str:
    return hashlib.md5(f"{seed}{path.parent.name}/{path.name}{size}".encode()).hexdigest()


def read_source(path: Path) -> str | None:
    """Return the text; None for undecodable files, number tables and special tokens in text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return None
    if any(token in text for token in ADDED_TOKENS):
        return None
    head = text[:20000]
    if sum(character.isdigit() for character in head) > 0.3 * len(head):
        return None
    return text.replace("\r\n", "\n")


def pick_lines(files: list[Path]) -> list[str]:
    """Return up to 40 lines of ordinary length of every file, in file order."""
    lines = []
    for path in files:
        text = read_source(path)
        if text:
            lines += [line for line in text.split("\n") if 8 < len(line) < 100][:40]
    return lines
