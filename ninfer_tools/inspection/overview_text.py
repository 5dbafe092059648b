"""The overview as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ninfer_formats.errors import printable
from ninfer_tools.console import format_bytes, format_table
from ninfer_tools.inspection.model import model_line

_MOST_LINES = 100
QUICK_CHECK = (
    "This quick check reads the directory, not the weights: damaged payload bytes show only with "
    "--verify."
)


def render(record: Mapping[str, Any]) -> str:
    """Return the overview of `overview.describe` as aligned, short text."""
    blocks = [
        f"{printable(record['path'], 400)}\n{format_table(_facts(record))}",
        _block("groups", _group_rows(record["groups"])),
        _block("formats", _format_rows(record["formats"])),
        _block("largest tensors", _tensor_rows(record["largest"])),
        _block("resources", _resource_rows(record["resources"])),
        _block("files", _file_rows(record["files"])),
        _block("loads in", _engine_rows(record["engines"])) + _engine_hint(record),
        _lines("problems", record["problems"]),
        _lines("notices", record["notices"]),
        QUICK_CHECK,
    ]
    return "\n\n".join(block for block in blocks if block)


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "container", f"version {record['version']}"
    if record["identity"]:
        names = [name for name in record["identity"].values() if name is not None]
        yield "identity", "/".join(names)
    if record["name"]:
        yield "name", record["name"]
    if record["architecture"]:
        yield "architecture", record["architecture"]
    yield "model", model_line(record["model"])
    yield "weights", record["profile"] or "no named profile"
    yield "size", _size(record)
    if record["directory_sha256"]:
        yield (
            "directory",
            f"{record['directory_bytes']:,} bytes, SHA-256 {record['directory_sha256'][:16]}",
        )
    for item in record["recognised"]:
        confirm = " (--digest confirms)" if item["sha256"] else " (its SHA-256 is not known)"
        yield "recognised", item["text"] + confirm
    if record["policies"]:
        yield "policies", ", ".join(f"{k} {v:,}" for k, v in record["policies"].items())
    if record["provenance"]:
        yield "provenance", _provenance(record["provenance"])


def _size(record: Mapping[str, Any]) -> str:
    size, expected = record["bytes"], record["expected_bytes"]
    text = f"{size:,} bytes ({format_bytes(size)}) in {_count(len(record['files']), 'file')}"
    if size == expected:
        return f"{text}, as the directory says"
    return f"{text}; the directory says {expected:,}"


def _provenance(provenance: Mapping[str, Any]) -> str:
    plain = {k: v for k, v in provenance.items() if isinstance(v, str | int | float)}
    nested = {k: v for k, v in provenance.items() if k == "upgraded_from"}
    return ", ".join(f"{k} {v}" for k, v in {**plain, **nested}.items()) or "recorded, see --json"


def _group_rows(groups: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for item in groups:
        if item["state"] == "absent" and not item["objects"]:
            yield item["group"], "absent", "", "", ""
            continue
        missing = f"{len(item['missing']):,} missing" if item["missing"] else ""
        wrong = f"{len(item['faults']):,} wrong" if item["faults"] else ""
        counts = _count(item["objects"], "object")
        lacks = ", ".join(filter(None, (missing, wrong)))
        yield item["group"], item["state"], counts, format_bytes(item["bytes"]), lacks


def _format_rows(formats: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for item in formats:
        objects, values = _count(item["objects"], "object"), _count(item["values"], "value")
        yield item["format"], objects, values, format_bytes(item["bytes"])


def _tensor_rows(tensors: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for item in tensors:
        yield item["id"], str(item["shape"]), item["format"], format_bytes(item["bytes"])


def _resource_rows(resources: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for item in resources:
        yield item["component"] or "-", item["role"], item["bytes"]


def _file_rows(files: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    if len(files) < 2:
        return
    for item in files:
        size = "" if item["bytes"] is None else format_bytes(item["bytes"])
        yield item["name"], item["state"], size


def _engine_rows(engines: Iterable[Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    for item in engines:
        if item["compatible"]:
            yield item["engine"], "yes", ""
            continue
        more = len(item["reasons"]) - 1
        first = item["reasons"][0] if item["reasons"] else ""
        yield item["engine"], "no", first + (f" (and {more} more)" if more > 0 else "")


def _engine_hint(record: Mapping[str, Any]) -> str:
    if all(item["compatible"] for item in record["engines"]):
        return ""
    return "\n  (`ninfer check FILE --engine NAME` gives every reason and the way out)"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _block(title: str, rows: Iterable[Sequence[object]]) -> str:
    table = format_table(rows)
    return f"{title}\n{table}" if table else ""


def _lines(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    shown = [f"  {printable(line, 2400)}" for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"  … and {len(lines) - _MOST_LINES:,} more (--json lists all)")
    return "\n".join([title, *shown])
