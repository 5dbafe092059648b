"""Short names of published artifacts, and the revision that holds exactly the known file."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.published import PUBLISHED, PublishedArtifact
from ninfer_tools.hub.api import fetch_history, fetch_tree
from ninfer_tools.hub.failures import RevisionMissingError
from ninfer_tools.hub.listing import read_tree
from ninfer_tools.hub.reference import HubReference
from ninfer_tools.hub.snapshot import HubSnapshot, open_snapshot

_MOST_COMMITS = 300


@dataclass(frozen=True)
class Wish:
    """What narrows a short name: container version, drafter and weights; None where not given."""

    container: int | None = None
    drafter: str | None = None
    weights: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == Wish()


def is_short_name(text: str) -> bool:
    """Tell whether a text can only be a short name: neither `/` nor `@` in it."""
    return not set(text) & set("/@")


def choose_published(name: str, wish: Wish) -> PublishedArtifact:
    """Return the published artifact that a short name and a wish mean.

    Without a container version the newest is meant, without weights groupwise-int where they
    exist, without a drafter the file without one where it exists; of several the newest. Raises
    UsageError that lists what was published.
    """
    family = [item for item in PUBLISHED if item.model_id == name.lower()]
    if not family:
        names = dict.fromkeys(item.model_id for item in PUBLISHED)
        raise UsageError(
            "not the short name of a published artifact",
            got=name,
            want=", ".join(names),
            remedy="name another repository as OWNER/NAME@REVISION",
        )
    found = [item for item in family if item.weights_id == (wish.weights or "groupwise-int")]
    if not wish.weights and not found:
        found = family
    version = wish.container or max((item.version for item in found), default=0)
    found = [item for item in found if item.version == version]
    if wish.drafter is not None:
        found = [item for item in found if item.drafter == wish.drafter]
    else:
        found = [item for item in found if item.drafter is None] or found
    if not found:
        published = dict.fromkeys(map(_describe, family))
        raise UsageError("nothing like this was published", got=name, want="; ".join(published))
    return found[-1]


def locate(artifact: PublishedArtifact) -> HubSnapshot:
    """Return the repository at a commit that holds exactly this published file.

    The recorded revision is tried first. Where it is not known, does not exist or holds another
    file by now, the history of the repository is searched for the file's SHA-256; no bytes of the
    file are read for that. Raises UsageError when the SHA-256 is not known, NinferError when no
    commit holds the file.
    """
    if artifact.sha256 is None:
        raise UsageError("it is not known where this file was published", got=_describe(artifact))
    if artifact.revision is not None:
        try:
            snapshot = open_snapshot(HubReference(artifact.repository, artifact.revision))
        except RevisionMissingError:
            pass
        else:
            if _holds(snapshot, artifact):
                return snapshot
    return _search_history(artifact)


def file_name(artifact: PublishedArtifact) -> str:
    """Return the file's path in its repository."""
    return f"{artifact.filename}.ninfer"


def _holds(snapshot: HubSnapshot, artifact: PublishedArtifact) -> bool:
    file = snapshot.files.get(file_name(artifact))
    return file is not None and file.sha256 == artifact.sha256


def _search_history(artifact: PublishedArtifact) -> HubSnapshot:
    newest = HubReference(artifact.repository, "main")
    for count, commit in enumerate(fetch_history(newest)):
        if count == _MOST_COMMITS:
            break
        reference = HubReference(artifact.repository, commit)
        snapshot = HubSnapshot(reference, commit, read_tree(fetch_tree(reference)), True)
        if _holds(snapshot, artifact):
            return snapshot
    raise NinferError(
        "no commit of the repository holds this published file any more",
        where=artifact.repository,
        want=f"{file_name(artifact)} with SHA-256 {artifact.sha256}",
        remedy=f"take what is there now with `ninfer pull {artifact.repository}@main`",
    )


def _describe(artifact: PublishedArtifact) -> str:
    drafter = f" --with {artifact.drafter}" if artifact.drafter else ""
    return (
        f"{artifact.model_id} --container {artifact.version} --weights {artifact.weights_id}"
        f"{drafter}"
    )
