"""Stored tensors: formats, layouts and shapes an engine refuses, at open or on access."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Tensor
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.ownership import UNREFERENCED
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import REASON, Finding, list_names, notice, refuse


def check_tensors(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse tensors the engine cannot use; in version 3 an object nobody refers to is skipped."""
    owners = artifact.examination.owners
    faults: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    for item in artifact.tensors():
        fault = _find_fault(item, engine)
        if fault is not None:
            loose = artifact.version == 3 and owners[item.id] == UNREFERENCED
            (skipped if loose else faults).setdefault(fault, []).append(item.id)
    for fault, names in faults.items():
        yield refuse(f"{fault}: {_count(names)}")
    for fault, names in skipped.items():
        yield notice(f"{fault}, but nothing refers to it: {_count(names)}")
    if faults:
        yield notice("no migration changes a format: convert the checkpoint again with others")


def has_faults(artifact: Artifact, engine: Engine) -> bool:
    """Return whether the engine refuses a tensor it needs."""
    return any(item.kind == REASON for item in check_tensors(artifact, engine))


def _explain_name(name: str) -> str:
    """Return an unknown format or layout name with who writes it, as far as known."""
    words = nf.explain_fork_name(name)
    return f"{name} ({words})" if words else name


def _find_fault(item: Tensor, engine: Engine) -> str | None:
    if item.format not in nf.FORMATS:
        return f'unknown format {_explain_name(item.format)} ("unknown tensor format")'
    if item.format not in engine.formats:
        return f"{engine.name} has no format {item.format}"
    if item.layout not in nf.LAYOUTS:
        return f"unknown layout {_explain_name(item.layout)}"
    problem = find_object_problem(item)
    if problem is not None:
        facts = f"{item.format} {list(item.shape)} at {item.offset}"
        return f"object is not usable, {problem.what} ({facts})"
    return _find_edge(item, engine)


def _find_edge(item: Tensor, engine: Engine) -> str | None:
    if item.format != nf.NVFP4 or engine.padded_nvfp4:
        return None
    n, k = item.shape
    if n % 128 or k % 64:
        return (
            f"NVFP4 matrix {list(item.shape)} has edges: {engine.name} wants rows a multiple of "
            f"128 and columns a multiple of 64 (this release reads it)"
        )
    return None


def check_divisors_member(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse the fork member `divisors`, which the original reader calls fatal at open."""
    names = [item.id for item in artifact.tensors() if item.divisors != 1]
    names = names or _names_with_member(artifact)
    if names:
        yield refuse(
            f"tensors with the member `divisors`, which {engine.name} refuses at open as an "
            f"unknown member: {_count(names)}"
        )
        yield notice("no migration splits stacked divisors: convert the checkpoint again")


def _names_with_member(artifact: Artifact) -> list[str]:
    """Return tensors that write the member with its default, which records no longer show."""
    raw = artifact.raw_directory()
    if b'"divisors"' not in raw:
        return []
    from ninfer_formats.strict_json import parse_json

    return [item["id"] for item in parse_json(raw)["objects"] if "divisors" in item]


def _count(names: list[str]) -> str:
    return f"{len(names)} tensor{'s' * (len(names) != 1)} ({list_names(names)})"
