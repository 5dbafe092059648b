"""What the package carries of the demo checkpoint: names, sizes and hashes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import ArtifactError
from ninfer_tools.demo.packing import REINSTALL

PACKED = Path(__file__).parent / "data"
PARTS = ("checkpoint", "dflash2")


@dataclass(frozen=True)
class DemoFile:
    """One file; `name` is relative with forward slashes, its packed form is `name` + ".zst"."""

    name: str
    bytes: int
    sha256: str
    packed_bytes: int
    packed_sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of the checkpoint and its drafter, and where their packed forms lie."""

    files: tuple[DemoFile, ...]
    packed: Path = PACKED

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that name this content; any changed byte changes them."""
        lines = "".join(f"{file.sha256}  {file.name}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def part(self, name: str) -> list[DemoFile]:
        return [file for file in self.files if file.name.startswith(f"{name}/")]


def read_manifest(packed: Path = PACKED) -> Manifest:
    """Read `manifest.json` of a folder of packed files; ArtifactError where it is missing."""
    record = read_record(packed / "manifest.json")
    return Manifest(tuple(DemoFile(**file) for file in record["files"]), packed)


def read_metrics() -> dict[str, Any]:
    """Return the figures measured when checkpoint and drafter were trained."""
    return read_record(PACKED / "metrics.json")


def read_record(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            "bundled file cannot be read", path=path, got=error, remedy=REINSTALL
        ) from error
