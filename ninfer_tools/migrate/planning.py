"""What a migration request makes of its source: refused with every reason, or an emission."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats import numeric_formats as nf
from ninfer_formats.completeness import find_missing, find_part_problems
from ninfer_formats.directory import Identity, Tensor
from ninfer_formats.errors import ArtifactError, NinferError, UsageError
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.reader import Artifact
from ninfer_formats.write_plan import DEFAULT_MAX_FILE_BYTES, choose_artifact_id
from ninfer_tools.migrate.draft import Draft, draft_artifact
from ninfer_tools.migrate.emission import Emission, emit_v2, emit_v3
from ninfer_tools.migrate.execution import source_paths
from ninfer_tools.migrate.groups import add_group, drop_group, replace_template

_KNOWN_NAMES = frozenset({*nf.FORMATS, *nf.LAYOUTS})


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


def plan_migration(request: Request, artifact: Artifact, others: list[Artifact]) -> Emission:
    """Return what would be written; NinferError with every reason where it cannot be."""
    draft = draft_artifact(artifact)
    for group in request.drop:
        draft = drop_group(draft, group)
    for (group, _), other in zip(request.add, others, strict=True):
        refuse_unusable(other, set(other.components) - {group})
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


def is_unchanged(request: Request, artifact: Artifact) -> bool:
    return (
        artifact.version == request.to
        and not request.changes_content
        and request.identity in (None, artifact.identity)
        and request.artifact_id == "derived"
        and len(artifact.files) == 1
        and (request.to == 2 or artifact.file_bytes <= request.max_file_bytes)
    )


def refuse_unusable(artifact: Artifact, dropped: set[str]) -> None:
    """Refuse partial groups, naming every missing object, missing parts, and objects of the wrong
    size. Objects in a format this release does not know are copied as they are."""
    problems = [
        problem
        for state in find_missing(artifact)
        if state.group not in dropped
        for problem in state.problems()
    ]
    problems += find_part_problems(artifact)
    named = {problem.where for problem in problems}
    problems += [item for item in _wrong_objects(artifact, dropped) if item.where not in named]
    if problems:
        raise ArtifactError(
            f"not whole: {'; '.join(map(str, problems))}",
            path=artifact.path,
            remedy="`ninfer inspect` shows what is there; --drop leaves a group out",
        )


def _wrong_objects(artifact: Artifact, dropped: set[str]) -> Iterator[ArtifactError]:
    owners = artifact.examination.owners
    for item in artifact.objects.values():
        known = not isinstance(item, Tensor) or {item.format, item.layout} <= _KNOWN_NAMES
        problem = find_object_problem(item) if known and owners[item.id] not in dropped else None
        if problem is not None:
            yield problem


def refuse_same_file(output: Path, names: set[str], artifacts: list[Artifact]) -> None:
    """Refuse to write or remove, under any of `names` beside the output, a file of a source."""
    for path in source_paths(artifacts):
        for name in {output.name, *names}:
            target = output.parent / name
            if target.exists() and path.exists() and path.samefile(target):
                raise UsageError(
                    "the same file is input and output",
                    path=target,
                    remedy="give another output path; the input stays untouched",
                )


def refuse_idle_options(request: Request) -> None:
    """Refuse options that mean nothing for the wanted version, rather than ignore them."""
    choose_artifact_id(request.artifact_id)
    split = request.max_file_bytes != DEFAULT_MAX_FILE_BYTES
    if request.to == 2 and (split or request.artifact_id != "derived"):
        raise UsageError("--max-file-bytes and --artifact-id go with --to 3")
    if request.to == 3 and request.identity is not None:
        raise UsageError("--identity goes with --to 2")
