"""`ninfer migrate IN OUT --to 2|3`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.completeness import find_missing

from ninfer_formats.directory import Identity
from ninfer_formats.errors import ArtifactError, NinferError, UsageError
from ninfer_formats.output_target import refuse_occupied, resolve_target
from ninfer_formats.reader import Artifact, open_artifact
from ninfer_tools.console import format_bytes, print_json, show_progress
from ninfer_tools.migrate.draft import Draft, Stored, draft_artifact
from ninfer_tools.migrate.emission import Emission, emit_v2, emit_v3
from ninfer_tools.migrate.execution import execute, source_paths
from ninfer_tools.migrate.groups import add_group, drop_group, replace_template


@dataclass(frozen=True)
class Request:
    """What the user asked for, checked as far as it can be without opening files."""

    source: Path
    output: Path
    to: int
    template: bytes | None
    drop: tuple[str, ...]
    add: tuple[tuple[str, Path], ...]
    max_file_bytes: int
    artifact_id: str
    identity: Identity | None
    max_directory_bytes: int

    @property
    def changes_content(self) -> bool:
        return bool(self.template is not None or self.drop or self.add)


def run(
    *,
    source: Path,
    output: Path,
    to: int,
    chat_template: Path | None,
    drop: list[str],
    add: list[str],
    max_file_bytes: int,
    artifact_id: str,
    identity: str | None,
    dry_run: bool,
    force: bool,
    max_directory_bytes: int,
    json_output: bool,
) -> int:
    """Migrate; return the exit code. Errors are NinferErrors, with nothing written."""
    request = Request(
        source=source,
        output=output,
        to=to,
        template=None if chat_template is None else _read_template(chat_template),
        drop=tuple(drop),
        add=tuple(_parse_addition(item) for item in add),
        max_file_bytes=max_file_bytes,
        artifact_id=artifact_id,
        identity=None if identity is None else _parse_identity(identity),
        max_directory_bytes=max_directory_bytes,
    )
    artifact = open_artifact(source, max_directory_bytes=max_directory_bytes)
    others = [
        open_artifact(path, max_directory_bytes=max_directory_bytes) for _, path in request.add
    ]
    _refuse_same_file(request, [artifact, *others])
    unchanged = _is_unchanged(request, artifact)
    emission = None if unchanged else plan_migration(request, artifact, others)
    report = _describe(request, artifact, emission, dry_run)
    if not dry_run:
        _write(request, artifact, emission, force)
    _show(report, json_output)
    return 0


def plan_migration(request: Request, artifact: Artifact, others: list[Artifact]) -> Emission:
    """Return what would be written; NinferError with every reason where it cannot be."""
    _refuse_unusable(artifact, set(request.drop))
    draft = draft_artifact(artifact)
    for group in request.drop:
        draft = drop_group(draft, group)
    for (group, _), other in zip(request.add, others, strict=True):
        _refuse_unusable(other, set(other.components) - {group})
        draft = add_group(draft, draft_artifact(other), group)
    if request.template is not None:
        draft = replace_template(draft, request.template)
    try:
        return _emit(request, draft)
    except NinferError as error:
        error.path = error.path or artifact.path
        raise


def _emit(request: Request, draft: Draft) -> Emission:
    if request.to == 2:
        return emit_v2(draft, request.output.name, request.identity)
    return emit_v3(draft, request.output.name, request.max_file_bytes, request.artifact_id)


def _is_unchanged(request: Request, artifact: Artifact) -> bool:
    return (
        artifact.version == request.to
        and not request.changes_content
        and request.artifact_id == "derived"
        and len(artifact.files) == 1
        and (request.to == 2 or artifact.file_bytes <= request.max_file_bytes)
    )


def _refuse_unusable(artifact: Artifact, dropped: set[str]) -> None:
    """Refuse partial groups, naming every missing object, and objects of the wrong size."""
    problems = [
        str(problem)
        for state in find_missing(artifact)
        if state.state in ("partial", "unreadable") and state.group not in dropped
        for problem in state.problems()
    ]
    problems += [str(item) for item in artifact.find_problems() if "unknown" not in item.what]
    if problems:
        raise ArtifactError(
            f"not whole: {'; '.join(problems)}",
            path=artifact.path,
            remedy=f"`ninfer inspect {artifact.path}` shows what is there; --drop leaves a group out",
        )


def _refuse_same_file(request: Request, artifacts: list[Artifact]) -> None:
    for path in source_paths(artifacts):
        if request.output.exists() and path.exists() and os.path.samefile(path, request.output):
            raise UsageError(
                "input and output are the same file",
                path=request.output,
                remedy="give another output path; the input stays untouched",
            )


def _write(request: Request, artifact: Artifact, emission: Emission | None, force: bool) -> None:
    if emission is None:
        _copy_unchanged(request, artifact, force)
        return
    payload = sum(file.payload_bytes for file in emission.plan.files)
    with show_progress(payload, request.output.name) as progress:
        execute(
            emission,
            request.output,
            force=force,
            replaces=_old_parts(request) if force else (),
            progress=progress,
        )


def _copy_unchanged(request: Request, artifact: Artifact, force: bool) -> None:
    from ninfer_formats.copying import copy_range
    from ninfer_formats.payload import open_regular
    from ninfer_formats.publication import publish

    source, size = open_regular(artifact.path)
    name = request.output.name
    replaces = _old_parts(request) if force else ()
    try:
        with (
            show_progress(size, name) as progress,
            publish(request.output, {name: size}, force=force, replaces=replaces) as publication,
        ):
            copy_range(source, 0, publication.file(name), 0, size, progress)
    finally:
        os.close(source)


def _old_parts(request: Request) -> tuple[str, ...]:
    """Return the parts of the artifact that --force replaces."""
    try:
        old = open_artifact(request.output, max_directory_bytes=request.max_directory_bytes)
    except NinferError:
        return ()
    return tuple(item.path for item in old.files if item.path is not None)


def _read_template(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            "chat template is not UTF-8", path=path, where=f"byte {error.start}"
        ) from None
    if not text.strip() or "\0" in text:
        raise UsageError("chat template is empty or holds NUL bytes", path=path)
    return data


def _parse_addition(text: str) -> tuple[str, Path]:
    group, sign, path = text.partition("=")
    if not sign or not group or not path:
        raise UsageError("--add takes GROUP=FILE", got=text)
    return group, Path(path)


def _parse_identity(text: str) -> Identity:
    model_id, sign, weights_id = text.partition("/")
    if not sign or not model_id or not weights_id:
        raise UsageError("--identity takes MODEL/WEIGHTS", got=text)
    return Identity(model_id, weights_id)


def _describe(
    request: Request, artifact: Artifact, emission: Emission | None, dry_run: bool
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "input": str(artifact.path),
        "input_version": artifact.version,
        "output": str(request.output),
        "version": request.to,
        "dry_run": dry_run,
        "unchanged": emission is None,
        "dropped": list(request.drop),
        "added": [group for group, _ in request.add],
    }
    if emission is None:
        return {**record, "objects": len(artifact.objects), "bytes": artifact.file_bytes}
    copied = sum(
        emission.plan.objects[name].bytes
        for name, content in emission.contents.items()
        if isinstance(content, Stored) and name in emission.plan.objects
    )
    return {
        **record,
        "identity": None if emission.identity is None else str(emission.identity),
        "objects": len(emission.plan.objects),
        "bytes": emission.plan.bytes,
        "bytes_copied_verbatim": copied,
        "files": {file.name: file.bytes for file in emission.plan.files},
        "lost": list(emission.losses),
    }


def _show(report: dict[str, Any], json_output: bool) -> None:
    if json_output:
        print_json(report)
        return
    verb = "would write" if report["dry_run"] else "wrote"
    if report["unchanged"]:
        print(f"nothing to do: already version {report['version']}; {verb} an identical copy")
        print(f"  {report['output']}: {format_bytes(report['bytes'])}")
        return
    identity = f", {report['identity']}" if report["identity"] else ""
    print(f"{verb} version {report['version']}{identity}: {report['objects']} objects")
    for name, size in report["files"].items():
        print(f"  {name}: {format_bytes(size)} ({size:,} bytes)")
    print(f"  copied verbatim: {format_bytes(report['bytes_copied_verbatim'])}")
    for item in report["lost"]:
        print(f"  lost in version 2: {item}")


__all__ = ["Request", "plan_migration", "refuse_occupied", "resolve_target", "run"]
