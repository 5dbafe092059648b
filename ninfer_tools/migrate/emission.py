"""A draft turned into a write plan of version 2 or 3, with the content of every object."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ninfer_formats.directory import A16_ONLY, Identity, Use
from ninfer_formats.inventories.legacy_bindings import UPGRADED_POLICIES
from ninfer_formats.write_plan import (
    DirectoryDraft,
    WritePlan,
    choose_artifact_id,
    place_objects,
    plan_v2,
    plan_v3,
)
from ninfer_tools.migrate.contract import find_contract
from ninfer_tools.migrate.draft import Content, Draft, Stored

_SAMPLES = 64
_SAMPLE_BYTES = 4096


@dataclass(frozen=True)
class Emission:
    """What to write: the plan, the content of every object, and what the version cannot hold."""

    plan: WritePlan
    contents: Mapping[str, Content]
    losses: tuple[str, ...] = ()
    identity: Identity | None = None


def emit_v3(draft: Draft, name: str, max_file_bytes: int, artifact_id: str) -> Emission:
    """Plan a version 3 artifact; `artifact_id` is derived, random or 32 hexadecimal digits."""
    directory = DirectoryDraft(
        components=tuple(draft.components.values()),
        objects=place_objects(draft.objects.values()),
        bindings=draft.bindings,
        uses=draft.uses,
        metadata=draft.metadata,
        provenance=draft.provenance,
    )
    identifier = choose_artifact_id(artifact_id)
    salt = b"" if identifier else sample_contents(draft.contents)
    plan = plan_v3(directory, name, max_file_bytes, identifier, salt)
    return Emission(plan, draft.contents)


def emit_v2(draft: Draft, name: str, wanted: Identity | None) -> Emission:
    """Plan a version 2 artifact; ArtifactError with the reasons where no contract holds it."""
    contract = find_contract(draft, wanted)
    plan = plan_v2(contract.identity, place_objects(contract.objects), name)
    return Emission(
        plan, contract.contents, tuple(list_losses(draft, contract.divisors)), contract.identity
    )


def list_losses(draft: Draft, kept_divisors: int) -> list[str]:
    """Return what a version 2 file with `kept_divisors` scalars cannot say about the draft."""
    losses = []
    policies = [use for use in draft.uses if use.activation_policy != _upgraded_policy(draft, use)]
    if policies:
        losses.append(f"{len(policies)} activation policies (version 2 implies its own)")
    divisors = [use for use in draft.uses if use.auxiliaries]
    objects = {b.parts[0].object for use in divisors for b in use.auxiliaries.values()}
    if len(objects) > kept_divisors:
        losses.append(f"{len(objects)} per-use divisors collapse to {kept_divisors}")
    extra = sorted(set(draft.metadata) - {"name"})
    if extra:
        losses.append(f"metadata: {', '.join(extra)}")
    extra = sorted(set(draft.provenance) - {"upgraded_from"})
    if extra:
        losses.append(f"provenance: {', '.join(extra)}")
    return losses


def sample_contents(contents: Mapping[str, Content]) -> bytes:
    """Return a digest of up to 64 pages spread over the stored payload and of all new bytes: two
    artifacts with equal directories but other weights get other ids."""
    digest = hashlib.sha256()
    stored = [item for item in contents.values() if isinstance(item, Stored)]
    for content in contents.values():
        if isinstance(content, bytes):
            digest.update(content)
    for index in range(0, len(stored), -(-len(stored) // _SAMPLES) or 1):
        item = stored[index]
        record = item.artifact.objects[item.object_id]
        count = min(record.bytes, _SAMPLE_BYTES)
        middle = record.offset + (record.bytes - count) // 2
        digest.update(item.artifact.payload.read(middle, count).tobytes())
    return digest.digest()


def _upgraded_policy(draft: Draft, use: Use) -> str:
    binding = draft.bindings[use.parameter]
    item = draft.objects[binding.parts[0].object]
    return UPGRADED_POLICIES.get(getattr(item, "format", ""), A16_ONLY)
