"""`ninfer migrate IN OUT --to 2|3`."""

from __future__ import annotations

import os
from pathlib import Path

from ninfer_formats.copying import copy_range
from ninfer_formats.directory import Identity
from ninfer_formats.errors import UsageError
from ninfer_formats.output_target import resolve_target
from ninfer_formats.payload import open_regular
from ninfer_formats.publication import check_output, publish
from ninfer_formats.reader import Artifact, list_parts, open_artifact
from ninfer_tools.console import show_progress
from ninfer_tools.migrate.emission import Emission
from ninfer_tools.migrate.execution import execute
from ninfer_tools.migrate.planning import (
    Request,
    is_unchanged,
    plan_migration,
    refuse_idle_options,
    refuse_same_file,
    refuse_unusable,
)
from ninfer_tools.migrate.report import describe, show

MAX_TEMPLATE_BYTES = 4 << 20


def run(
    *,
    source: Path,
    output: str,
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
        output=_read_output(output),
        to=to,
        template=None if chat_template is None else _read_template(chat_template),
        drop=tuple(drop),
        add=tuple(_parse_addition(item) for item in add),
        max_file_bytes=max_file_bytes,
        artifact_id=artifact_id,
        identity=None if identity is None else _parse_identity(identity),
        max_directory_bytes=max_directory_bytes,
    )
    resolve_target(request.output, {request.output.name: 0})
    artifact = open_artifact(source, max_directory_bytes=max_directory_bytes)
    others = [
        open_artifact(path, max_directory_bytes=max_directory_bytes) for _, path in request.add
    ]
    refuse_idle_options(request)
    refuse_unusable(artifact, set(request.drop))
    unchanged = is_unchanged(request, artifact)
    emission = None if unchanged else plan_migration(request, artifact, others)
    sizes = _output_sizes(request, artifact, emission)
    replaces = list_parts(request.output) if force else ()
    refuse_same_file(request.output, {*sizes, *replaces}, [artifact, *others])
    check_output(request.output, sizes, force=force, replaces=replaces)
    report = describe(request, artifact, emission, dry_run)
    if not dry_run:
        _write(request, artifact, emission, force, replaces)
    show(report, json_output)
    return 0


def _output_sizes(
    request: Request, artifact: Artifact, emission: Emission | None
) -> dict[str, int]:
    if emission is None:
        return {request.output.name: artifact.file_bytes}
    return {file.name: file.bytes for file in emission.plan.files}


def _write(
    request: Request,
    artifact: Artifact,
    emission: Emission | None,
    force: bool,
    replaces: tuple[str, ...],
) -> None:
    if emission is None:
        _copy_unchanged(request, artifact, force, replaces)
        return
    payload = sum(file.payload_bytes for file in emission.plan.files)
    with show_progress(payload, request.output.name) as progress:
        execute(
            emission,
            request.output,
            force=force,
            replaces=replaces,
            progress=progress,
        )


def _copy_unchanged(
    request: Request, artifact: Artifact, force: bool, replaces: tuple[str, ...]
) -> None:
    source, size = open_regular(artifact.path)
    name = request.output.name
    try:
        with (
            show_progress(size, name) as progress,
            publish(request.output, {name: size}, force=force, replaces=replaces) as publication,
        ):
            copy_range(source, 0, publication.file(name), 0, size, progress)
    finally:
        os.close(source)


def _read_output(text: str) -> Path:
    if not text or text.endswith("/"):
        raise UsageError("the output is a file, not a folder", path=text or "''")
    return Path(text)


def _read_template(path: Path) -> bytes:
    descriptor, size = open_regular(path)
    try:
        data = os.pread(descriptor, MAX_TEMPLATE_BYTES, 0)
    finally:
        os.close(descriptor)
    if size > MAX_TEMPLATE_BYTES:
        raise UsageError(
            "chat template is too large", path=path, got=size, want=f"<= {MAX_TEMPLATE_BYTES}"
        )
    try:
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
