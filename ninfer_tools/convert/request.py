"""What a conversion was asked for, and the checkpoints that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import UsageError
from ninfer_tools.convert.calibration.record import Calibration
from ninfer_tools.convert.recipes.recipe_file import RecipeFile
from ninfer_tools.convert.regular_file import read_regular
from ninfer_tools.convert.rules import FormatRule
from ninfer_tools.convert.sources.checkpoint import Checkpoint, open_checkpoint
from ninfer_tools.convert.sources.mapping import SOURCE_NAMES
from ninfer_tools.convert.sources.resources import MAX_BYTES, ROLES
from ninfer_tools.hub.reference import HubReference, parse_source
from ninfer_tools.hub.snapshot import HubSnapshot, open_snapshot

BASE = "base"
_WANTED = (".json", ".jinja", ".safetensors")


@dataclass(frozen=True)
class Request:
    """Options of `ninfer convert`, parsed.

    `sources` maps base, dflash2, … to a folder or hub reference. `components` None means whatever
    is found. `proposal_rows` None means the default, 0 no proposal head. `resources` has the bytes
    of `resource_files`, by role.
    """

    sources: Mapping[str, str]
    output: Path
    profile: str = "nvfp4"
    components: tuple[str, ...] | None = None
    rules: tuple[FormatRule, ...] = ()
    recipe: RecipeFile | None = None
    calibration: Calibration | None = None
    resources: Mapping[str, bytes] = field(default_factory=dict)
    resource_files: Mapping[str, Path] = field(default_factory=dict)
    proposal_rows: int | None = None
    ranking: Path | None = None
    ranking_corpus: tuple[Path, ...] = ()
    name: str | None = None
    container: int = 3
    max_file_bytes: int = 32_000_000_000
    device: str = "cpu"
    require_pinned: bool = False


@dataclass(frozen=True)
class OpenedSource:
    """A checkpoint with its model's name and, from the hub, the snapshot it was read from."""

    checkpoint: Checkpoint
    name: str
    snapshot: HubSnapshot | None = None

    def as_record(self) -> dict[str, Any]:
        """Return where it is, for the report."""
        if self.snapshot is not None:
            return self.snapshot.as_record()
        return {"folder": str(Path(self.checkpoint.label).resolve())}


class SnapshotFiles:
    """The files of a hub snapshot, read by ranges: good for planning, not for weights."""

    def __init__(self, snapshot: HubSnapshot) -> None:
        self._snapshot = snapshot

    @property
    def label(self) -> str:
        return str(self._snapshot.pinned)

    def names(self) -> frozenset[str]:
        return frozenset(name for name in self._snapshot.files if "/" not in name)

    def size(self, name: str) -> int:
        return self._snapshot.file(name).bytes

    def path(self, name: str) -> str:
        return f"{self.label}/{name}"

    def read(self, name: str, begin: int, end: int) -> bytes:
        return self._snapshot.read_range(name, begin, end)

    def map(self, name: str) -> NDArray[np.uint8]:
        raise UsageError("only headers are at hand", path=self.path(name))


def parse_named_sources(base: str, named: Iterable[str]) -> dict[str, str]:
    """Return source name -> text of SRC and every NAME=SRC; UsageError for anything else."""
    if not base:
        raise UsageError("the source has no name", want="a folder, or OWNER/NAME@REVISION")
    found = {BASE: base}
    for item in named:
        name, sign, text = item.partition("=")
        known = [known for known in SOURCE_NAMES if known != BASE]
        if not sign or not text or name not in known:
            want = f"NAME=SRC with NAME one of {', '.join(known)}"
            raise UsageError("--source is not understood", got=item, want=want)
        if name in found:
            raise UsageError("source is given twice", got=name)
        found[name] = text
    return found


def parse_resources(items: Iterable[str]) -> dict[str, Path]:
    """Return role -> file of every ROLE=FILE; UsageError for anything else."""
    found: dict[str, Path] = {}
    for item in items:
        role, sign, path = item.partition("=")
        if not sign or not path or role not in ROLES:
            want = f"ROLE=FILE with ROLE one of {', '.join(ROLES)}"
            raise UsageError("--resource is not understood", got=item, want=want)
        if role in found:
            raise UsageError("--resource is given twice", got=role)
        found[role] = Path(path)
    return found


def read_given_resources(files: Mapping[str, Path]) -> dict[str, bytes]:
    """Return role -> bytes; UsageError for what is no regular file, or too large."""
    return {role: read_regular(path, MAX_BYTES) for role, path in files.items()}


def open_sources(request: Request, weights: bool) -> dict[str, OpenedSource]:
    """Open every source; from the hub, `weights` decides whether files are downloaded first."""
    return {name: _open(text, request, weights) for name, text in request.sources.items()}


def _open(text: str, request: Request, weights: bool) -> OpenedSource:
    place = parse_source(text)
    if not isinstance(place, HubReference):
        return OpenedSource(open_checkpoint(place), place.resolve().name)
    snapshot = open_snapshot(place, require_pinned=request.require_pinned)
    name = place.repository.rpartition("/")[2]
    if not weights:
        return OpenedSource(open_checkpoint(SnapshotFiles(snapshot)), name, snapshot)
    # Checkpoints lie at the top; folders of a repository hold other forms of the same model.
    wanted = [file for file in snapshot.files if "/" not in file and file.endswith(_WANTED)]
    folder = snapshot.download(wanted)
    return OpenedSource(open_checkpoint(folder), name, snapshot)
