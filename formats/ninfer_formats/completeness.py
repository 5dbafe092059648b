"""Whether an artifact is whole: what every group lacks, and what keeps the file from being used.

Needs the directory only; no payload byte is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ninfer_formats import numeric_formats as nf
from ninfer_formats.component_groups import (
    ConfigReading,
    component_groups,
    expected_parameters,
    read_configs,
)
from ninfer_formats.directory import ALLOW_A4, INPUT_DIVISOR, Binding, Tensor, Use
from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.group_state import GroupState, name_all
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.legacy_groups import legacy_groups
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.ownership import UNREFERENCED, group_of, is_known, own_objects

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact

__all__ = ["Examination", "GroupState", "find_missing", "ready_problems"]


def find_missing(artifact: Artifact) -> tuple[GroupState, ...]:
    """Return the state of every known group and of every other group the file has."""
    return artifact.examination.groups


def ready_problems(artifact: Artifact) -> list[ArtifactError]:
    """Return everything that keeps the artifact from being checked, migrated, run or served.

    Each is one line; together they name every missing object. Empty when the artifact is ready.
    """
    return artifact.examination.problems


class Examination:
    """What the directory of one artifact says about its completeness; all parts are lazy."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact

    @cached_property
    def owners(self) -> dict[str, str]:
        """Object id -> group, as `ownership.own_objects`."""
        return own_objects(self._artifact, self.bindings)

    @cached_property
    def bindings(self) -> Mapping[str, Binding]:
        """The bindings of a version 3 artifact as records, made once; empty in versions 1, 2."""
        return dict(self._artifact.bindings) if self.reading is not None else {}

    @cached_property
    def parameters(self) -> Mapping[str, Sequence[Parameter] | str]:
        """Version 3: group -> the parameters its config asks for, or why they cannot be told."""
        return {} if self.reading is None else expected_parameters(self._artifact, self.reading)

    @cached_property
    def groups(self) -> tuple[GroupState, ...]:
        """The known groups in file order, then unknown ones, with counts of objects and bytes."""
        objects: Counter[str] = Counter(self.owners.values())
        sizes: Counter[str] = Counter()
        for item in self._artifact.objects.values():
            sizes[self.owners[item.id]] += item.bytes
        found = (
            component_groups(self._artifact, self.reading, self.parameters, self.bindings)
            if self.reading is not None
            else legacy_groups(self._artifact)
        )
        return tuple(
            replace(state, objects=objects[state.group], bytes=sizes[state.group])
            for state in found
        )

    @cached_property
    def reading(self) -> ConfigReading | None:
        """What the component configs of a version 3 artifact say, None in versions 1 and 2."""
        if self._artifact.version != 3:
            return None
        return read_configs({c.name: c.config for c in self._artifact.components.values()})

    @property
    def geometry(self) -> ModelGeometry | None:
        """Sizes of the model as far as they are known, only of groups that are there."""
        if self.reading is not None:
            return self.reading.geometry
        legacy = self._artifact.legacy
        if legacy is None or legacy.match is None:
            return None
        found, absent = legacy.match.inventory.geometry, legacy.match.absent
        return ModelGeometry(
            found.text,
            None if "vision" in absent else found.vision,
            found.mtp and "mtp" not in absent,
            None if found.drafter is None or found.drafter.kind in absent else found.drafter,
        )

    @cached_property
    def problems(self) -> list[ArtifactError]:
        """What `ready_problems` returns."""
        found = [problem for state in self.groups for problem in state.problems()]
        if self.reading is not None and len(self.reading.drafters) > 1:
            found.append(
                ArtifactError("an artifact holds one drafter", got=list(self.reading.drafters))
            )
        named = {problem.where for problem in found}
        found += [
            problem
            for group, problem in self._object_problems
            if is_known(group) and problem.where not in named
        ]
        return [*found, *find_divisor_problems(self._artifact), *find_part_problems(self._artifact)]

    @cached_property
    def notices(self) -> list[str]:
        """What is unusual and can be skipped, one line each."""
        notices = [
            f"group {state.group} is skipped: {state.reason}"
            for state in self.groups
            if state.state in ("unknown", "absent") and state.reason
        ]
        notices += [str(problem) for group, problem in self._object_problems if not is_known(group)]
        loose = sum(1 for group in self.owners.values() if group == UNREFERENCED)
        if loose:
            notices.append(f"objects that nothing refers to: {loose}")
        return [*notices, *self._size_notices()]

    @cached_property
    def _object_problems(self) -> list[tuple[str, ArtifactError]]:
        items = self._artifact.objects.values()
        found = ((self.owners[item.id], find_object_problem(item)) for item in items)
        return [(group, problem) for group, problem in found if problem is not None]

    def _size_notices(self) -> Iterator[str]:
        artifact = self._artifact
        if artifact.version == 3:
            return
        end = artifact.prefix.payload_start + max(
            (item.end for item in artifact.objects.values()), default=0
        )
        if artifact.file_bytes > end:
            yield f"bytes behind the last object: {artifact.file_bytes - end}"


def find_part_problems(artifact: Artifact) -> list[ArtifactError]:
    """Return why parts cannot be read: missing, of another size, or of another artifact."""
    problems = []
    for index in range(1, len(artifact.files)):
        try:
            artifact.payload.file(index)
        except NinferError as error:
            problems.append(ArtifactError(str(error)))
    return problems


def find_divisor_problems(artifact: Artifact) -> list[ArtifactError]:
    """Return the uses that permit AllowA4 on an NVFP4 weight without an activation divisor."""
    if artifact.version != 3:
        return []
    bare, odd = [], []
    for use in artifact.uses:
        if use.activation_policy == ALLOW_A4 and is_known(group_of(use.parameter)):
            state = _divisor_state(artifact, use)
            if state is not None:
                (odd if state == "odd" else bare).append(f"{use.parameter} @ {use.input}")
    return [
        *name_all(f"uses lack {INPUT_DIVISOR}", bare, "AllowA4 on nvfp4"),
        *name_all(f"uses have an {INPUT_DIVISOR} that is no fp32 scalar", odd, "AllowA4 on nvfp4"),
    ]


def _divisor_state(artifact: Artifact, use: Use) -> str | None:
    parts = artifact.bindings[use.parameter].parts
    if not any(_format_of(artifact, part.object) == nf.NVFP4 for part in parts):
        return None
    divisor = use.auxiliaries.get(INPUT_DIVISOR)
    if divisor is None:
        return "bare"
    return None if _is_scalar(artifact, divisor) else "odd"


def _is_scalar(artifact: Artifact, binding: Binding) -> bool:
    part = binding.parts[0]
    one = len(binding.parts) == 1 and part.end - part.begin == 1
    return one and _format_of(artifact, part.object) == nf.FP32


def _format_of(artifact: Artifact, object_id: str) -> str | None:
    item = artifact.objects[object_id]
    return item.format if isinstance(item, Tensor) else None
