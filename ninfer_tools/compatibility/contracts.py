"""Version 2 contracts seen from an opened artifact: is there one, and if not, why."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.published import same_size_as
from ninfer_formats.inventories.registered import COMMUNITY
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine, Identity

_SHOWN_REASONS = 5


class ContractSearch(NamedTuple):
    """The identity and form of the contract an artifact fills (None if none), and why not."""

    identity: Identity | None
    form: str
    reasons: tuple[str, ...]


def find_contract(artifact: Artifact, drop: Collection[str] = ()) -> ContractSearch:
    """Return the version 2 contract that the artifact fills once the groups `drop` are gone.

    This is the question `ninfer migrate --to 2` asks, so an identity here means it would do it.
    """
    from ninfer_tools.migrate.contract import find_contract as match
    from ninfer_tools.migrate.draft import draft_artifact
    from ninfer_tools.migrate.groups import drop_group

    try:
        draft = draft_artifact(artifact)
        for group in drop:
            draft = drop_group(draft, group)
        contract = match(draft)
    except NinferError as error:
        return ContractSearch(None, "", _shorten(error))
    identity = (contract.identity.model_id, contract.identity.weights_id or "")
    return ContractSearch(identity, contract.form, ())


def find_contract_for(artifact: Artifact, engine: Engine, drop: Collection[str]) -> ContractSearch:
    """Return the contract of `find_contract` if `engine` loads files of it."""
    found = find_contract(artifact, drop)
    if found.identity is None:
        return found
    if found.identity not in engine.identities or found.form == COMMUNITY:
        name = "/".join(found.identity) + (" in its community form" if found.form else "")
        return ContractSearch(None, found.form, (f"{engine.name} has no contract for {name}",))
    return found


def drafters_to_drop(artifact: Artifact, engine: Engine) -> tuple[str, ...]:
    """Return the drafters in the artifact that the engine does not know."""
    names = {name.partition("/")[0] for name in artifact.objects} | set(artifact.components)
    return tuple(name for name in ("dflash", "dflash2") if name in names - engine.drafters)


def find_identity(artifact: Artifact) -> Identity | None:
    """Return the identity under which a file of this content was published, as far as it says."""
    if artifact.identity is not None:
        return artifact.identity.model_id, artifact.identity.weights_id or "groupwise-int"
    origin = artifact.provenance.get("upgraded_from")
    if isinstance(origin, dict):
        pair = origin.get("model_id"), origin.get("weights_id")
        if all(isinstance(item, str) for item in pair):
            return str(pair[0]), str(pair[1])
    for item in same_size_as(artifact.file_bytes, version=artifact.version):
        return item.model_id, item.weights_id
    return find_contract(artifact).identity


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
