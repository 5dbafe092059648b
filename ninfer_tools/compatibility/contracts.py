"""Version 2 contracts seen from an opened artifact: is there one, and if not, why."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ninfer_formats.directory import Identity
from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.inventories.published import same_size_as
from ninfer_formats.inventories.registered import COMMUNITY
from ninfer_formats.ownership import group_of
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine

_SHOWN_REASONS = 5


class ContractSearch(NamedTuple):
    """The identity of the contract an artifact fills and its form; None and the reasons why not."""

    identity: Identity | None
    form: str
    reasons: tuple[str, ...]


def search_contract(artifact: Artifact, drop: Collection[str] = ()) -> ContractSearch:
    """Return the version 2 contract that the artifact fills once the groups `drop` are gone.

    This is the question `ninfer migrate --to 2` asks, so an identity here means it would do it.
    """
    from ninfer_tools.migrate.contract import find_contract
    from ninfer_tools.migrate.draft import draft_artifact
    from ninfer_tools.migrate.groups import drop_group

    try:
        draft = draft_artifact(artifact)
        for group in drop:
            draft = drop_group(draft, group)
        contract = find_contract(draft)
    except NinferError as error:
        return ContractSearch(None, "", _shorten(error))
    return ContractSearch(contract.identity, contract.form, ())


def search_contract_for(
    artifact: Artifact, engine: Engine, drop: Collection[str]
) -> ContractSearch:
    """Return what `search_contract` finds if `engine` loads files of it."""
    found = search_contract(artifact, drop)
    if found.identity is None:
        return found
    if found.identity not in engine.identities or found.form == COMMUNITY:
        name = f"{found.identity}{' in its community form' if found.form == COMMUNITY else ''}"
        return ContractSearch(None, found.form, (f"{engine.name} has no contract for {name}",))
    return found


def list_drafters(artifact: Artifact) -> tuple[str, ...]:
    """Return the drafters of which the artifact has anything."""
    names = {group_of(name) for name in artifact.objects} | set(artifact.components)
    return tuple(name for name in DRAFTERS if name in names)


def drafters_to_drop(artifact: Artifact, engine: Engine) -> tuple[str, ...]:
    """Return the drafters in the artifact that the engine does not know."""
    return tuple(name for name in list_drafters(artifact) if name not in engine.drafters)


def find_identity(artifact: Artifact) -> Identity | None:
    """Return the identity under which a file of this content was published, as far as it says."""
    stored = artifact.identity
    if stored is not None:
        return Identity(stored.model_id, stored.weights_id or "groupwise-int")
    from ninfer_tools.migrate.draft import recorded_identity

    recorded = recorded_identity(artifact.provenance)
    if recorded is not None:
        return recorded
    for item in same_size_as(artifact.file_bytes, version=artifact.version):
        return item.identity
    return search_contract(artifact).identity


def _shorten(error: NinferError) -> tuple[str, ...]:
    what = error.what.removeprefix("no version 2 contract holds this: ")
    reasons = what.split("; ")
    facts = [f"got {error.got}"] * (error.got is not None)
    facts += [f"want {error.want}"] * (error.want is not None)
    place = f"{error.where}: " if error.where else ""
    shown = [f"{place}{reasons[0]}", *reasons[1:_SHOWN_REASONS], *facts]
    if len(reasons) > _SHOWN_REASONS:
        shown.append(f"and {len(reasons) - _SHOWN_REASONS} more")
    return tuple(shown)
