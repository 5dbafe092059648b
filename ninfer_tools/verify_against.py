"""`ninfer verify FILE --against SRC`: every parameter of an artifact held against its source."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.geometry import TextGeometry
from ninfer_formats.reader import Artifact, open_artifact
from ninfer_tools.console import format_table, print_json
from ninfer_tools.convert.error_plot import check_picture, draw_errors
from ninfer_tools.convert.named_files import list_verification_files
from ninfer_tools.convert.progress import show_conversion
from ninfer_tools.convert.request import (
    OpenedSource,
    Request,
    open_sources,
    parse_named_sources,
)
from ninfer_tools.convert.sources.name_lists import shorten_problems
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.preflight import Preflight, find_problems
from ninfer_tools.convert.verification import Comparison, compare_parameters, count_values

WORST = 10
_TOKEN_IDS = "proposal/token_ids"


def run(
    *,
    file: Path,
    against: str,
    sources: list[str],
    samples: int | None = None,
    plot: Path | None = None,
    force: bool = False,
    max_directory_bytes: int,
    json_output: bool,
) -> int:
    """Compare; return 0 when every parameter is within its bound, else 1."""
    if plot is not None:
        check_picture(plot, force)
    artifact = open_artifact(file, max_directory_bytes=max_directory_bytes)
    opened = open_sources(Request(parse_named_sources(against, sources), file), weights=True)
    if plot is not None:
        list_verification_files(file, plot, opened).refuse_overlaps()
    found = _find_sources(artifact, opened)
    if found.problems or found.sources is None:
        for problem in found.problems:
            print(str(problem), file=sys.stderr)
        return 1
    compared = _compare(artifact, found.sources.sources, samples)
    record = _describe(artifact, compared, samples)
    if plot is not None:
        parameters = {name: item.parameter for name, item in found.sources.sources.items()}
        draw_errors(compared, parameters, artifact.path.name, plot)
        record["plot"] = str(plot)
    print_json(record) if json_output else _show(record)
    for problem in shorten_problems(item.fault for item in compared if item.fault is not None):
        print(str(problem), file=sys.stderr)
    return 1 if record["outside"] or record["damaged"] else 0


def _find_sources(artifact: Artifact, opened: Mapping[str, OpenedSource]) -> Preflight:
    checkpoints = {name: item.checkpoint for name, item in opened.items()}
    ids = None
    if _TOKEN_IDS in artifact.bindings:
        ids = artifact.parameter(_TOKEN_IDS).decode()
    resources = {role: artifact.resource(role, owner) for owner, role in artifact.resources}
    paths = {role: f"{artifact.path}: {owner}/{role}" for owner, role in artifact.resources}
    found = find_problems(
        checkpoints, tuple(artifact.components), ids, resources, resource_paths=paths
    )
    if found.geometry is not None:
        _refuse_other_model(artifact, found.geometry.text, checkpoints["base"].label)
    return found


def _refuse_other_model(artifact: Artifact, text: TextGeometry, label: str) -> None:
    # Ids of its tokenizer would otherwise look wrong, and every tensor too.
    config = artifact.components["text"].config if "text" in artifact.components else {}
    for key in ("vocab_size", "hidden_size", "num_hidden_layers"):
        got, want = config.get(key), getattr(text, key)
        if got is not None and got != want:
            raise ArtifactError(
                "the artifact is of another model than the source", path=artifact.path,
                where=f"text.{key}", got=got, want=f"{want}, as {label} says",
            )  # fmt: skip


def _compare(
    artifact: Artifact, sources: Mapping[str, ParameterSource], samples: int | None
) -> list[Comparison]:
    # As if every value were a bfloat16, which most are.
    with show_conversion(2 * count_values(sources, samples)) as (advance, announce):
        announce("comparing")
        return compare_parameters(
            artifact, sources, samples, advance=lambda values: advance(2 * values)
        )


def _describe(
    artifact: Artifact, compared: list[Comparison], samples: int | None
) -> dict[str, Any]:
    damaged = [item for item in compared if item.fault is not None]
    outside = [item for item in compared if not item.within and item.fault is None]
    whole = [item for item in compared if item.fault is None]
    worst = sorted(whole, key=lambda item: item.severity, reverse=True)
    return {
        "file": str(artifact.path),
        "sampled_rows": samples,
        "parameters": len(compared),
        "bit_equal": sum(item.unequal == 0 for item in compared),
        "damaged": [item.as_record() for item in damaged],
        "outside": [item.as_record() for item in outside],
        "worst": [item.as_record() for item in worst[:WORST] if item.unequal],
    }


def _show(record: dict[str, Any]) -> None:
    rows = "" if record["sampled_rows"] is None else f", {record['sampled_rows']} rows of each"
    print(
        f"{record['parameters']:,} parameters compared{rows}: "
        f"{record['bit_equal']:,} equal bit for bit"
    )
    for title in ("worst", "outside"):
        if record[title]:
            head = ("parameter", "format", "relative error", "bound", "largest error")
            keys = ("parameter", "format", "relative_error", "bound", "max_error")
            rows = [tuple(_cell(item[key]) for key in keys) for item in record[title]]
            print(f"{title}:")
            print(format_table([head, *rows]))
    whole = "the others within" if record["damaged"] else "all within"
    state = f"{len(record['outside'])} outside their bound" if record["outside"] else whole
    if record["damaged"]:
        state += f", {len(record['damaged'])} damaged"
    if "plot" in record:
        print(f"picture: {record['plot']}")
    print(f"verdict: {state}")


def _cell(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
