"""`ninfer convert SRC --out FILE`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.output_target import OutputTarget, refuse_occupied, resolve_target
from ninfer_formats.publication import check_output
from ninfer_formats.reader import list_parts
from ninfer_tools.console import print_json
from ninfer_tools.convert.calibration.order import (
    carry_out,
    read_order,
    refuse_taken_calibration,
)
from ninfer_tools.convert.calibration.summary import describe_calibration
from ninfer_tools.convert.container2 import check_options
from ninfer_tools.convert.manifest import (
    drop_stale_manifest,
    refuse_taken_manifest,
    write_manifest,
)
from ninfer_tools.convert.plan import ConversionPlan, plan_conversion
from ninfer_tools.convert.progress import show_conversion
from ninfer_tools.convert.proposal import check_ranking
from ninfer_tools.convert.recipes.recipe_file import read_recipe
from ninfer_tools.convert.report import (
    describe_conversion,
    describe_plan,
    report_path,
    show_plan,
    write_report,
)
from ninfer_tools.convert.request import (
    OpenedSource,
    Request,
    open_sources,
    parse_named_sources,
)
from ninfer_tools.convert.rules import parse_rule
from ninfer_tools.convert.source_hashes import add_digests, hash_sources
from ninfer_tools.convert.sources.resources import MAX_BYTES, ROLES

_PROPOSAL = "proposal"
PROFILES = ("nvfp4", "groupwise-int", "fp8", "bf16")


def run(
    *,
    source: str,
    out: str,
    profile: str = "nvfp4",
    sources: list[str],
    components: str | None = None,
    rules: list[str],
    recipe: str | None = None,
    calibrate: Path | None = None,
    calibration: Path | None = None,
    calibration_tokens: int | None = None,
    resources: list[str],
    proposal_rows: int | None = None,
    no_proposal: bool = False,
    ranking: Path | None = None,
    ranking_corpus: list[str] | None = None,
    save_ranking: Path | None = None,
    name: str | None = None,
    container: int = 3,
    max_file_bytes: int = 32_000_000_000,
    device: str = "auto",
    require_pinned: bool = False,
    manifest: bool = False,
    dry_run: bool = False,
    resume: bool = False,
    force: bool = False,
    json_output: bool = False,
) -> int:
    """Convert; return the exit code. Errors are NinferErrors, with nothing at the target."""
    check_options(container, max_file_bytes)
    order = read_order(calibrate, calibration, calibration_tokens, Path(out))
    corpora = check_ranking(ranking, ranking_corpus or [], save_ranking, no_proposal, force)
    request = Request(
        sources=parse_named_sources(source, sources),
        output=Path(out),
        profile=_check_profile(profile),
        components=_parse_components(components),
        rules=tuple(parse_rule(item) for item in rules),
        recipe=None if recipe is None else read_recipe(recipe),
        calibration=order.calibration,
        resources=_read_resources(resources),
        proposal_rows=_choose_rows(components, proposal_rows, no_proposal, ranking, corpora),
        ranking=ranking,
        ranking_corpus=corpora,
        name=name,
        container=container,
        max_file_bytes=max_file_bytes,
        device=device if dry_run else _choose_device(device),
        require_pinned=require_pinned,
    )
    _refuse_taken_names(request, force)
    if manifest:
        refuse_taken_manifest(request.output, force)
    refuse_taken_calibration(order, request.output, free=force or resume)
    begin = time.monotonic()
    opened = open_sources(request, weights=not dry_run)
    _announce_snapshots(opened)
    found, plan = plan_conversion(request, opened, weights=not dry_run)
    if plan is not None and order.text is not None and not dry_run:
        _resolve(request, plan, opened, force)
        request = replace(request, calibration=carry_out(order, request, plan, opened, resume))
        found, plan = plan_conversion(request, opened, weights=True)
    record = describe_plan(request, found, plan, dry_run)
    if request.recipe is not None:
        path = str(request.recipe.path.resolve())
        record["recipe"] = {**request.recipe.as_record(), "path": path}
    record |= describe_calibration(order, request, plan)
    if plan is None:
        return _refuse(record, found.problems, json_output)
    target = _resolve(request, plan, opened, force)
    if dry_run:
        check_output(target.path, target.sizes, force=force, replaces=target.replaces)
        print_json(record) if json_output else show_plan(record)
        return 0
    if not json_output:
        show_plan(record)
    if save_ranking is not None and plan.ranking is not None:
        plan.ranking.save(save_ranking)
    done, digests = _execute(plan, opened, target, request.device, resume)
    full = describe_conversion(plan, opened, done, record, time.monotonic() - begin)
    add_digests(full["sources"], opened, digests)
    write_report(report_path(request.output), full)
    drop_stale_manifest(request.output, manifest)
    if manifest:
        record["manifest"] = str(write_manifest(request.output, full))
    _show_done(request, record, full, json_output)
    return 0


def _check_profile(name: str) -> str:
    if name not in PROFILES:
        raise UsageError("unknown profile", got=name, want=", ".join(PROFILES))
    return name


def _parse_components(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part for part in text.split(",") if part and part != _PROPOSAL)


def _choose_rows(
    components: str | None,
    rows: int | None,
    no_proposal: bool,
    ranking: Path | None,
    corpora: tuple[Path, ...],
) -> int | None:
    if no_proposal and (rows is not None or ranking is not None):
        raise UsageError("--no-proposal contradicts --proposal-rows and --ranking")
    # A list of components without the proposal head leaves it out.
    left_out = components is not None and _PROPOSAL not in components.split(",")
    unasked = rows is None and ranking is None and not corpora
    return 0 if no_proposal or (left_out and unasked) else rows


def _read_resources(items: list[str]) -> dict[str, bytes]:
    found = {}
    for item in items:
        role, sign, path = item.partition("=")
        if not sign or role not in ROLES:
            want = f"ROLE=FILE with ROLE one of {', '.join(ROLES)}"
            raise UsageError("--resource is not understood", got=item, want=want)
        try:
            if Path(path).stat().st_size > MAX_BYTES:
                raise UsageError("file is too large", path=path, want=f"<= {MAX_BYTES} bytes")
            found[role] = Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read: {error.strerror}", path=path) from None
    return found


def _choose_device(name: str) -> str:
    try:
        import torch
    except ImportError:
        raise UsageError("conversion needs torch", remedy="pip install 'ninfer[convert]'") from None
    if name != "auto":
        try:
            torch.empty(1, device=name)
        except (RuntimeError, AssertionError) as error:
            raise UsageError("device cannot be used", got=name, want=str(error)) from None
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _refuse_taken_names(request: Request, force: bool) -> None:
    refuse_occupied(resolve_target(request.output, {request.output.name: 0}, force=force))
    report = report_path(request.output)
    refuse_occupied(resolve_target(report, {report.name: 0}, force=force))


def _announce_snapshots(opened: Mapping[str, OpenedSource]) -> None:
    for item in opened.values():
        if item.snapshot is not None:
            print(item.snapshot.describe(), file=sys.stderr)


def _refuse(record: dict[str, Any], problems: tuple[NinferError, ...], json_output: bool) -> int:
    """Print every problem, one line each; return the exit code."""
    if json_output:
        print_json(record)
    for problem in problems:
        print(str(problem), file=sys.stderr)
    return 1


def _resolve(
    request: Request, plan: ConversionPlan, opened: Mapping[str, OpenedSource], force: bool
) -> OutputTarget:
    sizes = {file.name: file.bytes for file in plan.written.files}
    replaces = list_parts(request.output) if force else ()
    target = resolve_target(request.output, sizes, force=force, replaces=replaces)
    names = {*sizes, *replaces, report_path(request.output).name}
    for item in opened.values():
        files = item.checkpoint.files
        for name in files.names():
            mine = target.parent / name
            if name in names and mine.exists() and os.path.realpath(files.path(name)) == str(mine):
                raise UsageError("the output is a file of the source", path=mine)
    return target


def _execute(
    plan: ConversionPlan,
    opened: Mapping[str, OpenedSource],
    target: OutputTarget,
    device: str,
    resume: bool,
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Convert and publish; return the record of every object, and SHA-256 by source path."""
    from ninfer_tools.convert.execution import execute

    total = sum(item.bytes for item in plan.written.objects.values())
    with hash_sources(plan, opened, target, resume) as hashes:
        try:
            with show_conversion(total) as (advance, announce):
                follow = hashes.follow(advance)
                done = execute(
                    plan, target, resume=resume, device=device, advance=follow, announce=announce
                )
        except KeyboardInterrupt:
            print("interrupted; the same command with --resume goes on from here", file=sys.stderr)
            raise
        try:
            hashes.finish()
        except KeyboardInterrupt:
            print("interrupted; the artifact is complete, but has no report", file=sys.stderr)
            raise
    return done, hashes.digests


def _show_done(
    request: Request, record: Mapping[str, Any], full: Mapping[str, Any], json_output: bool
) -> None:
    report = report_path(request.output)
    if json_output:
        print_json({**record, "seconds": full["seconds"], "report": str(report)})
        return
    print(f"wrote {request.output} in {full['seconds']:.1f} s; figures in {report}")
    if "manifest" in record:
        print(f"SHA-256 of every file in {record['manifest']}")
