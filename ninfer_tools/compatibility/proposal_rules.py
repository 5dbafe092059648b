"""Version 3: the proposal domain against the proposal head and the drafters."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import Finding, notice

_HEAD = "proposal/head"
_PROPOSERS = frozenset({"mtp", *DRAFTERS})


def check_proposal(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Note a proposal head that nothing will use; a partial one is refused with its parameters."""
    proposal = artifact.components["text"].proposal
    if proposal is None or proposal.domain == "full":
        if _HEAD in artifact.bindings:
            domain = "full" if proposal else "not given"
            yield notice(f"the proposal domain is {domain}: {_HEAD} is not used")
        return
    if not _PROPOSERS.intersection(artifact.components):
        yield notice("the proposal head is not used: there is neither mtp nor a drafter")
