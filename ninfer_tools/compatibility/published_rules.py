"""Published files of the same size: what they need from the engine."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.inventories.published import PublishedArtifact, same_size_as
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import Finding, notice


def note_published(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Note the oldest engine revision of the published file of exactly this size.

    No engine checks it: the number is in the publisher's manifest only.
    """
    for item in find_same_size(artifact):
        if item.minimum_runtime is not None:
            yield notice(
                f"the published {item.filename}.ninfer of this size needs engine revision "
                f"{item.minimum_runtime} or newer; no engine checks that"
            )


def find_same_size(artifact: Artifact) -> tuple[PublishedArtifact, ...]:
    """Return the published files of this size, version and (before version 3) identity."""
    identity = artifact.identity
    if identity is None:
        return same_size_as(artifact.file_bytes, artifact.version)
    return same_size_as(
        artifact.file_bytes, artifact.version, identity.model_id, identity.weights_id
    )
