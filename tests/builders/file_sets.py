"""Output sets of an entry and two parts, old and new, and the steps their publication takes."""

import os
from pathlib import Path

from ninfer_formats.publication import publish

ENTRY, PART_1, PART_2 = "m.ninfer", "m.ninfer.part-0001", "m.ninfer.part-0002"
OLD = {ENTRY: b"old entry", PART_1: b"old part 1", PART_2: b"old part 2"}
NEW = {ENTRY: b"entry", PART_1: b"part one", PART_2: b""}
ONE = {ENTRY: b"entry"}
STEPS_WITHOUT_FORCE = [
    f"written {ENTRY}",
    f"written {PART_1}",
    f"written {PART_2}",
    "planned",
    f"placed {PART_1}",
    f"placed {PART_2}",
    "entry published",
]
STEPS_WITH_FORCE = [
    *STEPS_WITHOUT_FORCE[:4],
    f"set aside {ENTRY}",
    f"set aside {PART_1}",
    f"set aside {PART_2}",
    *STEPS_WITHOUT_FORCE[4:],
]


def write_set(path: Path, files: dict[str, bytes], **options) -> None:
    sizes = {name: len(data) for name, data in files.items()}
    with publish(path, sizes, **options) as output:
        for name, data in files.items():
            os.pwrite(output.file(name), data, 0)


def lay_out(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return name -> bytes for everything in `folder`, None for what is not a file."""
    return {p.name: p.read_bytes() if p.is_file() else None for p in folder.iterdir()}


def interrupt_at(wanted: str):
    def on_step(step: str) -> None:
        if step == wanted:
            raise KeyboardInterrupt

    return on_step
