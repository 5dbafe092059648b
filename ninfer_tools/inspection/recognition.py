"""Published artifacts that a file may be."""

from __future__ import annotations

from typing import Any

from ninfer_formats.inventories.published import (
    PUBLISHED,
    PublishedArtifact,
    published_v1,
)
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.published_rules import find_same_size

BY_SIZE = "size"
BY_DIRECTORY = "directory"
BY_DIGEST = "sha256"
_HOW = {BY_SIZE: "same size as", BY_DIRECTORY: "same directory as", BY_DIGEST: "is"}


def recognise(artifact: Artifact, directory_sha256: str | None) -> list[dict[str, Any]]:
    """Return the published artifacts of the same container version, size and identity; version 1
    also by the SHA-256 of its directory. Neither proves anything about payload bytes."""
    if len(artifact.files) > 1:
        return []
    by_directory = published_v1(directory_sha256 or "") if artifact.version == 1 else None
    if by_directory is not None and by_directory.bytes == artifact.file_bytes:
        return [describe_match(by_directory, BY_DIRECTORY)]
    found = find_same_size(artifact)
    return [
        describe_match(item, BY_SIZE) for item in found if item.objects == len(artifact.objects)
    ]


def confirm(file_sha256: str) -> PublishedArtifact | None:
    """Return the published artifact with exactly this SHA-256."""
    return next((item for item in PUBLISHED if item.sha256 == file_sha256), None)


def describe_match(item: PublishedArtifact, how: str) -> dict[str, Any]:
    """Return a match as a record; `text` is one sentence."""
    revision = f" (rev {item.revision[:12]})" if item.revision else ""
    name = f"{item.repository} {item.filename}.ninfer version {item.version}{revision}"
    return {
        "match": how,
        "confirmed": how == BY_DIGEST,
        "repository": item.repository,
        "filename": f"{item.filename}.ninfer",
        "version": item.version,
        "revision": item.revision,
        "sha256": item.sha256,
        "text": f"{_HOW[how]} {name}",
    }
