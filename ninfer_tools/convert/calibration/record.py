"""The calibration file: the largest input of every projection (rules V-109 and V-110)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.regular_file import read_regular
from ninfer_tools.convert.sources.json_text import read_json_object
from ninfer_tools.convert.sources.name_lists import name_some

FORMAT, VERSION = "ninfer-calibration", 1
SUFFIX = ".calibration.json"
MAX_BYTES = 256 << 20
_MEMBERS = ("format", "version", "sources", "text", "made_with", "projections")
_TEXT_MEMBERS = {"sha256": str, "bytes": int, "tokens": int, "chunk_tokens": int}
# The components that a forward pass runs.
RUN = ("text", "mtp")
_HEAD, _PROPOSAL_HEAD = "text/output_head", "proposal/head"
_REMEDY = "make it again with --calibrate"
_LARGEST_FLOAT32 = 3.4028234663852886e38
# Site -> the largest magnitude of that input, None where nothing came there.
Largest = Mapping[str, float | None]


@dataclass(frozen=True)
class Projection:
    """One measured projection: its shape, and the largest magnitude at each of its inputs."""

    shape: tuple[int, ...]
    largest: Largest


@dataclass(frozen=True)
class Calibration:
    """Largest inputs by projection.

    `sources` maps base, mtp and quantized to the digests of `identity.identify_sources`; `text` is
    what `text.CalibrationText.as_record` says. `sha256` is that of the file. `assumed` stands for
    a calibration that is still to be made: every projection counts as measured.
    """

    sources: Mapping[str, Mapping[str, str]]
    text: Mapping[str, Any]
    made_with: Mapping[str, str]
    projections: Mapping[str, Projection]
    sha256: str
    path: Path | None = None
    assumed: bool = False

    def largest_input(self, parameter: str, site: str) -> float | None:
        """Return the largest magnitude of an input, None where it was not measured or not hit."""
        if self.assumed:
            return 1.0 if site.partition("/")[0] in RUN else None
        found = self._find(parameter)
        return None if found is None else found.largest.get(site)

    def covers(self, parameter: str, site: str) -> bool:
        """Tell whether the calibration looked at this product."""
        found = self._find(parameter)
        return found is not None and site in found.largest

    def _find(self, parameter: str) -> Projection | None:
        # Rows of the output head have its inputs.
        name = _HEAD if parameter == _PROPOSAL_HEAD else parameter
        return self.projections.get(name)

    def as_record(self) -> dict[str, Any]:
        """Return what the report says of it."""
        path = None if self.path is None else str(self.path)
        return {"file": path, "sha256": self.sha256, "text": dict(self.text)}


ASSUMED = Calibration({}, {}, {}, {}, "0" * 64, None, True)


def list_measured(parameters: Iterable[Parameter]) -> Iterator[tuple[Parameter, tuple[str, ...]]]:
    """Yield every projection that a calibration measures, with the input sites it has there."""
    for p in parameters:
        sites = tuple(s for s in p.inputs if s.partition("/")[0] in RUN)
        if sites and p.residency in RUN:
            yield p, sites


def check_fit(
    calibration: Calibration,
    parameters: Iterable[Parameter],
    sources: Mapping[str, Mapping[str, str]],
) -> None:
    """Raise NinferError unless the calibration is of these checkpoints and has every projection.

    `sources` may lack digests that were not read; those that are there must be equal.
    """
    if calibration.assumed:
        return
    _check_sources(calibration, sources)
    missing = []
    for p, sites in list_measured(parameters):
        found = calibration.projections.get(p.name)
        if found is None or any(site not in found.largest for site in sites):
            missing.append(p.name)
        elif found.shape != p.shape:
            raise NinferError(
                "calibration is of a projection of another shape", path=calibration.path,
                where=p.name, got=list(found.shape), want=list(p.shape), remedy=_REMEDY,
            )  # fmt: skip
    if missing:
        raise NinferError(
            f"calibration lacks {len(missing)} projections: {name_some(missing)}",
            path=calibration.path, remedy=_REMEDY,
        )  # fmt: skip


def _check_sources(calibration: Calibration, sources: Mapping[str, Mapping[str, str]]) -> None:
    if set(calibration.sources) != set(sources):
        raise NinferError(
            "calibration was made with other sources", path=calibration.path,
            got=", ".join(sorted(calibration.sources)), want=", ".join(sorted(sources)),
            remedy=_REMEDY,
        )  # fmt: skip
    for name, digests in sources.items():
        if any(calibration.sources[name].get(key) != value for key, value in digests.items()):
            what = f"calibration was made with another checkpoint as {name}"
            raise NinferError(what, path=calibration.path, remedy=_REMEDY)


def encode_calibration(
    sources: Mapping[str, Mapping[str, str]],
    text: Mapping[str, Any],
    made_with: Mapping[str, str],
    projections: Mapping[str, Projection],
) -> bytes:
    """Return the bytes of a calibration file: JSON with one line per projection."""
    head = {
        "format": FORMAT, "version": VERSION, "sources": sources, "text": text,
        "made_with": made_with,
    }  # fmt: skip
    lines = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
    rows = ",\n".join(
        f" {json.dumps(name)}: " + json.dumps({"shape": p.shape, "largest_input": p.largest})
        for name, p in projections.items()
    )
    return ("{\n" + "".join(lines) + '"projections": {\n' + rows + "\n}}\n").encode()


def read_calibration(path: Path) -> Calibration:
    """Return the calibration in a file; UsageError when it cannot be read, NinferError for
    anything that is not a calibration file of this version."""
    return parse_calibration(read_regular(path, MAX_BYTES), path)


def parse_calibration(raw: bytes, path: Path) -> Calibration:
    """Return the calibration in the bytes of a file; NinferError for anything else."""
    try:
        value = read_json_object(raw, "calibration", str(path))
        if value.get("format") != FORMAT:
            raise NinferError("not a calibration file", got=value.get("format"), want=FORMAT)
        if type(value.get("version")) is not int or value["version"] != VERSION:
            raise NinferError("unknown version", got=value.get("version"), want=VERSION)
        _check_members(value, _MEMBERS, None)
        return Calibration(
            {name: _texts(item, f"sources.{name}") for name, item in _object(value, "sources")},
            _text_record(value["text"]),
            _texts(value["made_with"], "made_with"),
            {name: _projection(name, item) for name, item in _object(value, "projections")},
            hashlib.sha256(raw).hexdigest(),
            path,
        )
    except NinferError as error:
        error.path = error.path or path
        raise


def _check_members(value: Mapping[str, Any], want: tuple[str, ...], where: str | None) -> None:
    if set(value) != set(want):
        got = ", ".join(sorted(value)) or "none"
        raise NinferError(
            "calibration has other members", where=where, got=got, want=", ".join(want)
        )


def _object(value: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value[key], dict):
        raise NinferError("not an object", where=key, got=type(value[key]).__name__)
    yield from value[key].items()


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise NinferError("not an object of texts", where=where)
    return value


def _text_record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NinferError("not an object", where="text", got=type(value).__name__)
    _check_members(value, tuple(_TEXT_MEMBERS), "text")
    for key, kind in _TEXT_MEMBERS.items():
        if type(value[key]) is not kind:
            raise NinferError(f"not of type {kind.__name__}", where=f"text.{key}", got=value[key])
    return value


def _projection(name: str, value: Any) -> Projection:
    if not isinstance(value, dict):
        raise NinferError("not an object", where=name, got=type(value).__name__)
    _check_members(value, ("shape", "largest_input"), name)
    shape, largest = value["shape"], value["largest_input"]
    if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
        raise NinferError("not a shape", where=name, got=shape)
    if not isinstance(largest, dict):
        raise NinferError("not an object", where=f"{name} largest_input", got=largest)
    return Projection(tuple(shape), {s: _number(name, s, n) for s, n in largest.items()})


def _number(name: str, site: str, value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= _LARGEST_FLOAT32:
        raise NinferError(
            "not a largest magnitude", where=f"{name} @ {site}", got=value,
            want="null, or a float32 from 0",
        )  # fmt: skip
    return float(value)
