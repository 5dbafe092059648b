"""Groups, parameters, parts and divisors: what an artifact lacks, for any engine."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.completeness import (
    find_divisor_problems,
    find_missing,
    find_part_problems,
)
from ninfer_formats.group_state import GroupState
from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.identity_rules import name_producer
from ninfer_tools.compatibility.remedies import migrate_command, offer_download
from ninfer_tools.compatibility.tensor_rules import has_faults
from ninfer_tools.compatibility.verdict import Finding, notice, refuse, way_out
from ninfer_tools.migrate.groups import OPTIONAL_GROUPS


def check_completeness(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse everything that is not whole, naming every missing object; offer to leave it out."""
    states = find_missing(artifact)
    refused = [refuse(str(item)) for state in states for item in state.problems()]
    yield from refused
    yield from _refuse_two_drafters(artifact)
    rest = [*find_divisor_problems(artifact), *find_part_problems(artifact)]
    yield from (refuse(str(item)) for item in rest)
    drop = groups_to_drop(states)
    if drop and not rest and not has_faults(artifact, engine):
        yield way_out(migrate_command(artifact.path, 3, drop))
    if refused or rest:
        yield notice(f"producer: {name_producer(artifact)}")
        yield from offer_download(artifact, engine)
    yield from _note_skipped(states, engine)


def groups_to_drop(states: tuple[GroupState, ...]) -> tuple[str, ...]:
    """Return the groups without which the artifact is whole, nothing if that does not help."""
    broken = tuple(state.group for state in states if state.problems())
    return broken if all(group in OPTIONAL_GROUPS for group in broken) else ()


def _refuse_two_drafters(artifact: Artifact) -> Iterator[Finding]:
    found = [name for name in DRAFTERS if name in artifact.components]
    if artifact.version == 3 and len(found) > 1:
        yield refuse("an artifact holds one drafter, this has dflash and dflash2")
        for name in found:
            yield way_out(migrate_command(artifact.path, 3, (name,)))


def _note_skipped(states: tuple[GroupState, ...], engine: Engine) -> Iterator[Finding]:
    for state in states:
        if state.state == "unknown":
            yield notice(
                f"{engine.name} skips group {state.group} "
                f"({state.objects} objects): {state.reason or 'it is not known'}"
            )
        elif state.state == "absent" and state.reason:
            yield notice(f"{engine.name} skips group {state.group}: {state.reason}")
