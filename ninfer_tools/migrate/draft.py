"""The artifact between reading and writing: version 3 terms, and where every byte comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ninfer_formats.directory import Binding, Component, Identity, StoredObject, Tensor, Use
from ninfer_formats.errors import ArtifactError
from ninfer_formats.reader import Artifact


@dataclass(frozen=True)
class Stored:
    """Content that is the payload of an object of an opened artifact, copied verbatim."""

    artifact: Artifact
    object_id: str


@dataclass(frozen=True)
class Joined:
    """Content made of row ranges of stored matrices: (artifact, tensor, first row, end row)."""

    rows: tuple[tuple[Artifact, Tensor, int, int], ...]


Content = bytes | Stored | Joined


@dataclass(frozen=True)
class Draft:
    """Everything that goes into the output, before offsets are chosen.

    `contents` has one entry per object; while a conversion is planned, tensors that are still to
    be encoded have none. `identity` is what the source says it is, as far as it
    says so: version 2 needs it, version 3 records it.
    """

    components: Mapping[str, Component]
    objects: Mapping[str, StoredObject]
    contents: Mapping[str, Content]
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    identity: Identity | None = None

    def with_(self, **changes: Any) -> Draft:
        return replace(self, **changes)


def draft_artifact(artifact: Artifact) -> Draft:
    """Return an opened artifact as a draft; versions 1 and 2 need a registered identity."""
    draft = Draft(
        components=dict(artifact.components),
        objects=dict(artifact.objects),
        contents={name: Stored(artifact, name) for name in artifact.objects},
        bindings=dict(artifact.bindings.items()),
        uses=artifact.uses,
        metadata=artifact.metadata,
        provenance=artifact.provenance,
        identity=recorded_identity(artifact.provenance),
    )
    if artifact.version == 3:
        return draft
    if artifact.legacy is None or artifact.legacy.match is None:
        raise ArtifactError(
            "identity is not registered, so its parameters have no names",
            path=artifact.path,
            got=artifact.identity,
            remedy="`ninfer inspect` lists what is in it",
        )
    inventory = artifact.legacy.match.inventory
    identity = Identity(inventory.model_id, inventory.weights_id)
    upgraded = {"version": artifact.version, **_identity_record(identity)}
    return draft.with_(
        metadata={"name": inventory.model_id},
        provenance={"upgraded_from": upgraded},
        identity=identity,
    )


def read_content(content: bytes | Joined) -> np.ndarray:
    """Return content that is not copied from one object, uint8."""
    if isinstance(content, bytes):
        return np.frombuffer(content, np.uint8)
    from ninfer_formats.tensors import join_rows, view_rows

    return join_rows(
        [
            view_rows(
                artifact.payload_of(tensor.id),
                tensor.format,
                tensor.layout,
                tensor.shape,
                begin,
                end,
                divisors=tensor.divisors,
            )
            for artifact, tensor, begin, end in content.rows
        ]
    )


def _identity_record(identity: Identity) -> dict[str, Any]:
    return {"model_id": identity.model_id, "weights_id": identity.weights_id}


def recorded_identity(provenance: Mapping[str, Any]) -> Identity | None:
    """Return the version 2 identity that a migration recorded, None where none did."""
    record = provenance.get("upgraded_from")
    if not isinstance(record, Mapping):
        return None
    model_id, weights_id = record.get("model_id"), record.get("weights_id")
    if isinstance(model_id, str) and isinstance(weights_id, str):
        return Identity(model_id, weights_id)
    return None
