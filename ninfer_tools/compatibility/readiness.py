"""The verdict of this release: can it read, verify, migrate and run the artifact."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.completeness_rules import check_completeness
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.identity_rules import (
    descriptor_mismatches,
    explain_identity,
    refuse_mismatches,
)
from ninfer_tools.compatibility.resource_rules import check_contents
from ninfer_tools.compatibility.tensor_rules import check_tensors
from ninfer_tools.compatibility.verdict import REASON, Finding, notice, refuse

THIS = "this"
_MEANING = "this release can read, verify, migrate and run it"


def check_readiness(artifact: Artifact) -> Iterator[Finding]:
    """Yield why this release cannot use the artifact, or that it can, and what it skips."""
    findings = list(_find_all(artifact))
    yield from findings
    if not any(item.kind == REASON for item in findings):
        yield notice(_MEANING)


def _find_all(artifact: Artifact) -> Iterator[Finding]:
    engine = this_engine(artifact)
    if artifact.legacy is not None and artifact.legacy.match is None:
        yield refuse(
            f"identity {artifact.identity} is not registered{explain_identity(artifact)}: its "
            f"tensors have no meaning here; `ninfer inspect` lists them"
        )
        return
    mismatched = {f"object {item.name}" for item in descriptor_mismatches(artifact)}
    yield from refuse_mismatches(artifact)
    for item in check_completeness(artifact, engine):
        if not item.text.startswith(tuple(f"{where}:" for where in mismatched)):
            yield item
    yield from check_tensors(artifact, engine)
    yield from check_contents(artifact, engine)


def this_engine(artifact: Artifact) -> Engine:
    """Return what this release accepts in the container version of the artifact: all of it."""
    formats = frozenset(nf.FORMATS)
    return Engine(THIS, artifact.version, formats, frozenset(DRAFTERS), padded_nvfp4=True)
