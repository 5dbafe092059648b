"""What a conversion will do, and what it did: for people and as `FILE.conversion.json`."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ninfer_tools.console import format_bytes, format_table
from ninfer_tools.convert.calibration.divisors import count_origins
from ninfer_tools.convert.calibration.summary import list_lines
from ninfer_tools.convert.memory_need import peak_memory
from ninfer_tools.convert.plan import ConversionPlan
from ninfer_tools.convert.recipes.computed_source import ComputedSource
from ninfer_tools.convert.request import OpenedSource, Request
from ninfer_tools.convert.rules import IMPORT
from ninfer_tools.convert.sources.preflight import Preflight
from ninfer_tools.convert.versions import find_versions

SUFFIX = ".conversion.json"


def report_path(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


def describe_plan(
    request: Request, found: Preflight, plan: ConversionPlan | None, dry_run: bool
) -> dict[str, Any]:
    """Return the record of a plan, or of the problems that forbid one."""
    record: dict[str, Any] = {
        "output": str(request.output),
        "dry_run": dry_run,
        "profile": request.profile,
        "components": list(found.components),
        "problems": [str(problem) for problem in found.problems],
        "notices": list(plan.notices if plan else found.notices),
    }
    if plan is None:
        return record
    return record | {
        "container": plan.written.version,
        "identity": None if plan.identity is None else str(plan.identity),
        "proposal_rows": plan.proposal_rows,
        "ranking": None if plan.ranking is None else plan.ranking.record,
        "divisors": count_origins(plan.activations),
        "formats": _count_formats(plan),
        "files": {file.name: file.bytes for file in plan.written.files},
        "bytes": plan.written.bytes,
        "disk_bytes": plan.written.bytes + (1 << 20),
        "memory_bytes": peak_memory(plan),
        "plan_sha256": plan.digest,
    }


def _count_formats(plan: ConversionPlan) -> list[dict[str, Any]]:
    """Return parameters, objects and bytes by residency, format and method."""
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for parent in plan.parents.values():
        first = parent.ranges[0].parameter
        key = (first.partition("/")[0], parent.format, plan.assigned[first].method)
        counts.setdefault(key, Counter()).update(
            parameters=len(parent.ranges), objects=1, bytes=parent.bytes
        )
    names = ("component", "format", "method")
    return [dict(zip(names, key, strict=True)) | dict(count) for key, count in counts.items()]


def show_plan(record: Mapping[str, Any]) -> None:
    """Print a plan for people."""
    print(f"components: {', '.join(record['components']) or 'none'}")
    for notice in record["notices"]:
        print(f"note: {notice}")
    for problem in record["problems"]:
        print(f"problem: {problem}")
    if "formats" not in record:
        return
    head = ("component", "format", "method", "parameters", "objects", "bytes")
    print(format_table([head, *(tuple(row[key] for key in head) for row in record["formats"])]))
    if record["identity"]:
        print(f"container version 2, {record['identity']}")
    if record["proposal_rows"]:
        print(f"proposal head: {record['proposal_rows']:,} rows{_tell_ranking(record['ranking'])}")
    for line in list_lines(record):
        print(line)
    verb = "would be" if record["dry_run"] else "is"
    size, need = format_bytes(record["bytes"]), format_bytes(record["disk_bytes"])
    memory = format_bytes(record["memory_bytes"])
    print(f"output {verb} {record['bytes']:,} bytes ({size}); disk needed: {need}")
    print(f"memory needed on the CPU: at most {memory}, besides pages of mapped files")


def _tell_ranking(ranking: Mapping[str, Any]) -> str:
    digest = ranking.get("sha256")
    return "" if digest is None else f", ranked by {ranking['from']} (SHA-256 {digest})"


def describe_conversion(
    plan: ConversionPlan,
    opened: Mapping[str, OpenedSource],
    done: Mapping[str, Any],
    summary: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Return the content of `FILE.conversion.json`."""
    found = plan.preflight.sources
    return {
        **summary,
        "seconds": round(seconds, 3),
        "versions": {
            "python": platform.python_version(), **find_versions("ninfer", "torch", "numpy")
        },
        "sources": {name: _describe_source(item) for name, item in opened.items()},
        "objects": [_describe_object(plan, id, done.get(id) or {}) for id in plan.parents],
        "not_bit_equal": [
            name for name, item in plan.assigned.items()
            if item.method == IMPORT and not plan.sources[name].exact
        ],
        "activation_divisors": sum(
            id.startswith("auxiliary/") or id.endswith("/input_scale_divisor")
            for id in plan.literals
        ),
        "activations": [item.as_record() for item in plan.activations],
        "ignored_tensors": list(found.ignored) if found else [],
    }  # fmt: skip


def _describe_source(item: OpenedSource) -> dict[str, Any]:
    files = item.checkpoint.files
    sizes: dict[str, dict[str, Any]] = {
        name: {"bytes": files.size(name)} for name in sorted(files.names())
    }
    if item.snapshot is not None:
        for name, record in sizes.items():
            known = item.snapshot.files.get(name)
            if known is not None and known.sha256 is not None:
                record["sha256"] = known.sha256
    return {**item.as_record(), "files": sizes}


def _describe_object(plan: ConversionPlan, id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    parent = plan.parents[id]
    names = [item.parameter for item in parent.ranges]
    tensors = {
        f"{Path(tensor.path).name}:{tensor.name}": None
        for name in names if name in plan.sources for tensor in plan.sources[name].tensors
    }  # fmt: skip
    assigned = plan.assigned[names[0]]
    errors = record.get("errors")
    return {
        "id": id,
        "shape": list(parent.shape),
        "format": parent.format,
        "method": assigned.method,
        "decided_by": sorted({plan.assigned[name].origin for name in names}),
        "parameters": names,
        "tensors": list(tensors),
        "exact": (errors is None or not errors["max_error"])
        and not any(isinstance(plan.sources.get(name), ComputedSource) for name in names),
        "errors": errors,
        "seconds": record.get("seconds"),
    }


def encode_report(record: Mapping[str, Any]) -> bytes:
    """Return the bytes of `FILE.conversion.json`."""
    return (json.dumps(record, indent=1) + "\n").encode()
