"""Version 1 and 2: the identity, the forms that share one, and descriptors against the contract."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Tensor
from ninfer_formats.inventories.registered import COMMUNITY, Mismatch, find_mismatches
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.contracts import find_identity
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.remedies import migrate_command, offer_download
from ninfer_tools.compatibility.verdict import Finding, notice, refuse

_SHOWN_MISMATCHES = 8
# Identities that only forks of the original project know.
_FORK_IDENTITIES = {
    "qwen3.8-27b/gguf-q4-k-m": "a fork that keeps GGUF blocks",
    "qwen3.8-27b/folded-ternary": "a fork with ternary weights",
    "qwen3.8-27b-orcarouter/nvfp4": "a fork",
}
_COMMUNITY_READERS = (
    "the forks that read version 2 files of Ostfralla/Qwen3.8-27B-NVFP4-NInfer read this form"
)


def check_identity(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse identities without a contract, and the form that only shares the name of one."""
    identity = find_identity(artifact)
    if identity not in engine.identities:
        yield refuse(
            f"identity {identity} is not registered for {engine.name}{explain_identity(artifact)} "
            f"(it says: \"artifact identity '{identity}' is not supported by target …\")"
        )
        yield notice(f"{engine.name} has contracts for {_list_identities(engine)}")
        return
    match = artifact.legacy.match if artifact.legacy else None
    if match is not None and match.inventory.form == COMMUNITY:
        yield from _refuse_community(artifact, engine)


def explain_identity(artifact: Artifact) -> str:
    """Return who writes the identity of a file if only a fork does, else nothing."""
    fork = _FORK_IDENTITIES.get(str(find_identity(artifact)))
    return f" (only {fork} writes it)" if fork else ""


def _refuse_community(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    yield refuse(
        "two inventories share the identity qwen3.8-27b/nvfp4 and this is the community form: "
        "text/token_embedding is q8_g32_fp16, the official contract wants fp8_e4m3fn_row_bf16; "
        f"{engine.name} loads the official one only"
    )
    yield notice(_COMMUNITY_READERS)
    yield notice(
        f"the original project's upgrade tool refuses its {len(artifact.objects)} objects; "
        f"`{migrate_command(artifact.path, 3)}` makes a version 3 file for upstream-v3"
    )
    yield from offer_download(artifact, engine)


def check_descriptors(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse tensors whose shape or format is not the contract's, and offer the published file."""
    refused = list(refuse_mismatches(artifact))
    yield from refused
    if refused:
        yield from offer_download(artifact, engine)


def refuse_mismatches(artifact: Artifact) -> Iterator[Finding]:
    """Refuse tensors that are not the contract's, naming both descriptors and the producer."""
    mismatches = descriptor_mismatches(artifact)
    for item in mismatches[:_SHOWN_MISMATCHES]:
        yield refuse(_describe_mismatch(artifact, item))
    if len(mismatches) > _SHOWN_MISMATCHES:
        names = ", ".join(item.name for item in mismatches[_SHOWN_MISMATCHES:])
        yield refuse(f"{len(mismatches) - _SHOWN_MISMATCHES} more differ as well: {names}")


def descriptor_mismatches(artifact: Artifact) -> tuple[Mismatch, ...]:
    """Return the tensors of a version 1 or 2 file that differ from the registered inventory."""
    match = artifact.legacy.match if artifact.legacy else None
    if match is None:
        return ()
    stored = {item.id: (item.shape, item.format) for item in artifact.tensors()}
    return find_mismatches(match.inventory, stored)


def _describe_mismatch(artifact: Artifact, item: Mismatch) -> str:
    """Return one sentence: object, found and expected shape, format and layout, producer."""
    found = artifact.objects[item.name]
    layout = found.layout if isinstance(found, Tensor) else "?"
    shape, format = item.want
    return (
        f"tensor {item.name} does not match the contract: found {list(item.got[0])} {item.got[1]} "
        f"{layout}, expected {list(shape)} {format} {nf.FORMATS[format].layout}; "
        f"producer: {name_producer(artifact)}"
    )


def name_producer(artifact: Artifact) -> str:
    """Return the converter an artifact records, versions 1 and 2 record none."""
    producer = artifact.provenance.get("converter")
    return producer if isinstance(producer, str) and producer else "none recorded"


def _list_identities(engine: Engine) -> str:
    return ", ".join(sorted(map(str, engine.identities)))
