"""`ninfer convert SRC --out FILE`."""

from __future__ import annotations

import re
import sys
import time
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError, UsageError, printable
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
    encode_manifest,
    manifest_path,
    refuse_taken_manifest,
    tell_stale_manifest,
)
from ninfer_tools.convert.named_files import (
    NamedFiles,
    list_conversion_files,
    list_source_files,
)
from ninfer_tools.convert.plan import ConversionPlan, plan_conversion
from ninfer_tools.convert.progress import show_conversion
from ninfer_tools.convert.proposal import check_ranking
from ninfer_tools.convert.ranking_corpus import parse_corpora
from ninfer_tools.convert.recipes.recipe_file import read_recipe
from ninfer_tools.convert.report import (
    describe_conversion,
    describe_plan,
    encode_report,
    report_path,
    show_plan,
)
from ninfer_tools.convert.request import (
    OpenedSource,
    Request,
    open_sources,
    parse_named_sources,
    parse_resources,
    read_given_resources,
)
from ninfer_tools.convert.rules import parse_rule
from ninfer_tools.convert.source_hashes import add_digests, hash_sources
from ninfer_tools.convert.workplace import can_resume, recover_publication

_PROPOSAL = "proposal"
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
_MOST_NAME = 200
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
    given = parse_resources(resources)
    recipe_file = None if recipe is None else read_recipe(recipe)
    files = list_conversion_files(
        Path(out),
        inputs={
            "--recipe": (None if recipe_file is None else recipe_file.path,),
            "--ranking": (ranking,),
            "--ranking-corpus": parse_corpora(ranking_corpus or []),
            "--calibrate": (calibrate,),
            "--calibration": (calibration,),
            "--resource": given.values(),
        },
        calibrates=calibrate is not None,
        manifest=manifest,
        save_ranking=save_ranking,
    )
    files.refuse_overlaps()
    order = read_order(calibrate, calibration, calibration_tokens)
    corpora = check_ranking(ranking, ranking_corpus or [], save_ranking, no_proposal, force)
    request = Request(
        sources=parse_named_sources(source, sources),
        output=Path(out),
        profile=_check_profile(profile),
        components=_parse_components(components),
        rules=tuple(parse_rule(_check_text(item)) for item in rules),
        recipe=recipe_file,
        calibration=order.calibration,
        resources=read_given_resources(given),
        resource_files=given,
        proposal_rows=_choose_rows(components, proposal_rows, no_proposal, ranking, corpora),
        ranking=ranking,
        ranking_corpus=corpora,
        name=_check_name(name),
        container=container,
        max_file_bytes=max_file_bytes,
        device=_choose_device(device, dry_run),
        require_pinned=require_pinned,
    )
    if not dry_run:
        recover_publication(resolve_target(request.output, {request.output.name: 0}))
    _refuse_taken_names(request, force)
    if manifest:
        refuse_taken_manifest(request.output, force)
    refuse_taken_calibration(order, request.output, free=force or resume)
    begin = time.monotonic()
    opened = open_sources(request, weights=not dry_run)
    _announce_snapshots(opened)
    files = files.add_reads(list_source_files(opened, request.output, resume=resume))
    files.refuse_overlaps()
    request = replace(request, name=request.name or _name_model(opened["base"].name))
    found, plan = plan_conversion(request, opened, weights=not dry_run)
    if plan is not None and order.text is not None and not dry_run:
        _resolve(request, plan, files, force)
        request = replace(request, calibration=carry_out(order, request, plan, opened, resume))
        found, plan = plan_conversion(request, opened, weights=True)
    record = describe_plan(request, found, plan, dry_run)
    if request.recipe is not None:
        path = str(request.recipe.path.resolve())
        record["recipe"] = {**request.recipe.as_record(), "path": path}
    record |= describe_calibration(order, request, plan)
    if plan is None:
        return _refuse(record, found.problems, json_output)
    target = _resolve(request, plan, files, force)
    if dry_run:
        check_output(target.path, target.sizes, force=force, replaces=target.replaces)
        print_json(record) if json_output else show_plan(record)
        return 0
    if not json_output:
        show_plan(record)
    if save_ranking is not None and plan.ranking is not None:
        plan.ranking.save(save_ranking)
    full = _execute(
        plan, opened, target, device=request.device, resume=resume, manifest=manifest,
        describe=lambda done: describe_conversion(
            plan, opened, done, record, time.monotonic() - begin
        ),
    )  # fmt: skip
    if manifest:
        record["manifest"] = str(manifest_path(request.output))
    else:
        tell_stale_manifest(request.output)
    _show_done(request, record, full, json_output)
    return 0


def _check_profile(name: str) -> str:
    if name not in PROFILES:
        raise UsageError("unknown profile", got=name, want=", ".join(PROFILES))
    return name


def _check_name(name: str | None) -> str | None:
    if name is not None and (len(name) > _MOST_NAME or not _is_text(name)):
        want = f"at most {_MOST_NAME} characters, none of them a control character"
        raise UsageError("--name cannot be used", got=name, want=want)
    return name


def _check_text(rule: str) -> str:
    if not _is_text(rule):
        raise UsageError("--set is not understood", got=rule, want="GLOB=FORMAT[:METHOD]")
    return rule


def _name_model(folder: str) -> str:
    """Return the name of a folder, with escapes for what directories cannot hold."""
    return folder if _is_text(folder) else printable(folder, _MOST_NAME)


def _is_text(name: str) -> bool:
    return not {unicodedata.category(c) for c in name} & {"Cc", "Cs", "Zl", "Zp"}


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


def _choose_device(name: str, dry_run: bool) -> str:
    if not _DEVICE.fullmatch(name):
        raise UsageError("unknown device", got=name, want="auto, cpu, cuda or cuda:N")
    if dry_run:
        return name
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
    request: Request, plan: ConversionPlan, files: NamedFiles, force: bool
) -> OutputTarget:
    sizes = {file.name: file.bytes for file in plan.written.files}
    replaces = list_parts(request.output) if force else ()
    target = resolve_target(request.output, sizes, force=force, replaces=replaces)
    files.add_parts(request.output, (*sizes, *replaces)).refuse_overlaps()
    return target


def _execute(
    plan: ConversionPlan,
    opened: Mapping[str, OpenedSource],
    target: OutputTarget,
    *,
    device: str,
    resume: bool,
    manifest: bool,
    describe: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Convert and publish artifact, manifest and report; return the content of the report.

    `describe` makes it, less the SHA-256 of sources, of the records of all objects.
    """
    from ninfer_tools.convert.execution import execute

    full: dict[str, Any] = {}
    total = sum(item.bytes for item in plan.written.objects.values())
    with hash_sources(plan, opened, target, resume) as hashes:

        def finish(done: Mapping[str, Any], written: Path) -> dict[str, bytes]:
            hashes.finish()
            full.update(describe(done))
            add_digests(full["sources"], opened, hashes.digests)
            files = {report_path(target.path).name: encode_report(full)}
            if manifest:
                files[manifest_path(target.path).name] = encode_manifest(written, full)
            return files

        try:
            with show_conversion(total) as (advance, announce):
                execute(
                    plan, target, resume=resume, device=device, advance=hashes.follow(advance),
                    announce=announce, finish=finish,
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            if can_resume(target):
                stop.add_note("interrupted; the same command with --resume goes on from here")
            elif full:
                stop.add_note("interrupted; the artifact is complete")
            raise
    return full


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
