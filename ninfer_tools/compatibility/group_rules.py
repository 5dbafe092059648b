"""Version 1 and 2: required, partial, unknown and absent groups of objects."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.inventories.registered import InventoryMatch
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.contracts import drafters_to_drop, search_contract_for
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.remedies import migrate_command, offer_download
from ninfer_tools.compatibility.verdict import Finding, list_names, notice, refuse, way_out

_NOT_CONSUMED = "artifact object was not consumed by the selected target"


def check_groups(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Check the set of objects against the contract of the identity, group by group."""
    match = artifact.legacy.match if artifact.legacy else None
    if match is None:
        return
    yield from _refuse_missing(artifact, engine, match)
    yield from _refuse_extra(artifact, engine, match)
    if drafters_to_drop(artifact, engine):
        yield from _refuse_drafters(artifact, engine)
    yield from _note_absent(engine, match)


def _refuse_missing(artifact: Artifact, engine: Engine, match: InventoryMatch) -> Iterator[Finding]:
    partial = [name for name in match.partial if name in engine.drafters]
    for name in partial:
        missing = match.partial[name]
        yield refuse(
            f"group {name} is partial, {len(missing)} of its objects are missing: "
            f"{', '.join(missing)}"
        )
        yield from _offer_without(artifact, engine, (name,))
    optional = {name for group in DRAFTERS for name in match.partial.get(group, ())}
    missing = [name for name in match.missing if name not in optional]
    if missing:
        yield refuse(
            f"{len(missing)} required objects are missing: {', '.join(missing)} "
            f'(the engine says: "required artifact object is missing: {missing[0]}")'
        )
    if missing or partial:
        yield from offer_download(artifact, engine)


def _refuse_extra(artifact: Artifact, engine: Engine, match: InventoryMatch) -> Iterator[Finding]:
    foreign = [name for name in match.unknown_groups if name not in DRAFTERS]
    for group in foreign:
        names = [name for name in match.extra if name.partition("/")[0] == group]
        yield refuse(
            f"unknown group {group}: {len(names)} objects that {engine.name} does not consume "
            f'(it says: "{_NOT_CONSUMED}: {names[0]}"); releases of ninfer skip such a group'
        )
    if match.unexpected:
        yield refuse(
            f"{len(match.unexpected)} objects are not part of the contract: "
            f"{list_names(match.unexpected)}"
        )
    if foreign or match.unexpected:
        yield from offer_download(artifact, engine)


def _refuse_drafters(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    drop = drafters_to_drop(artifact, engine)
    first = next(name for name in artifact.objects if name.partition("/")[0] in drop)
    yield refuse(
        f"{engine.name} does not know the group {', '.join(drop)} "
        f'(it says: "{_NOT_CONSUMED}: {first}", whatever --spec is)'
    )
    yield from _offer_without(artifact, engine, drop)
    yield from offer_download(artifact, engine)


def _offer_without(artifact: Artifact, engine: Engine, drop: tuple[str, ...]) -> Iterator[Finding]:
    if engine.container != 2:
        return
    found = search_contract_for(artifact, engine, drop)
    if found.identity is None:
        yield notice(f"no version 2 contract holds the rest: {'; '.join(found.reasons)}")
    else:
        yield way_out(migrate_command(artifact.path, 2, drop))


def _note_absent(engine: Engine, match: InventoryMatch) -> Iterator[Finding]:
    for group in match.absent:
        if group in engine.drafters:
            yield notice(f"the file has no {group} group: --spec {group} is not available")
