"""Container versions: the file's against the engine's, and what a migration can do about it."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.completeness import find_missing
from ninfer_formats.container import PART_HEADER_BYTES
from ninfer_formats.inventories.published import published_v1
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.completeness_rules import groups_to_drop
from ninfer_tools.compatibility.contracts import (
    drafters_to_drop,
    find_identity,
    search_contract_for,
)
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.readiness import check_readiness
from ninfer_tools.compatibility.remedies import migrate_command, offer_download
from ninfer_tools.compatibility.resource_rules import note_unofficial
from ninfer_tools.compatibility.tensor_rules import check_tensors, has_faults
from ninfer_tools.compatibility.verdict import REASON, Finding, notice, refuse, way_out

_CONVERTER_LIMIT = 32_000_000_000
# Identity -> object counts that the original project's upgrade tool takes.
_UPGRADE_COUNTS = {
    "qwen3.6-27b/groupwise-int": (1124,),
    "qwen3.6-27b/nvfp4": (1307,),
    "qwen3.8-27b/groupwise-int": (1124, 1190),
    "qwen3.8-27b/nvfp4": (1124, 1190),
    "qwen3.6-35b-a3b/groupwise-int": (940,),
}


def check_container(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse a file of another container version; offer the migration only where it works."""
    words = engine.says
    if engine.container == 3 and artifact.version == 2:
        words = "NInfer v2 artifact is not supported"
    yield refuse(
        f"the file is container version {artifact.version} ({artifact.file_bytes} bytes); "
        f'{engine.name} reads version {engine.container} only (it says: "{words}")'
    )
    if engine.container == 1:
        yield notice("no way to version 1: nothing writes it any more; use a newer engine")
        return
    yield from (
        _offer_upgrade(artifact, engine)
        if engine.container == 3
        else _offer_version_2(artifact, engine)
    )
    yield from offer_download(artifact, engine)


def _offer_upgrade(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    drop = groups_to_drop(find_missing(artifact))
    findings = (*check_readiness(artifact), *check_tensors(artifact, engine))
    obstacles = dict.fromkeys(item.text for item in findings if item.kind == REASON)
    if obstacles:
        yield refuse(f"it would not load as version 3 either: {'; '.join(obstacles)}")
    if obstacles and (not drop or has_faults(artifact, engine)):
        return
    yield way_out(migrate_command(artifact.path, 3, drop))
    accepted = _UPGRADE_COUNTS.get(str(find_identity(artifact)), ())
    if artifact.version == 2 and len(artifact.objects) not in accepted:
        yield notice(
            f"the original project's upgrade tool refuses {len(artifact.objects)} objects under "
            f"this identity; `ninfer migrate` takes them"
        )


def _offer_version_2(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    drop = drafters_to_drop(artifact, engine)
    found = search_contract_for(artifact, engine, drop)
    if found.identity is None:
        yield notice(f"no version 2 contract holds this: {'; '.join(found.reasons)}")
        return
    yield way_out(migrate_command(artifact.path, 2, drop))
    if artifact.version == 1:
        yield from _note_original_migration(artifact)
        return
    yield notice(
        "version 2 does not hold policies, per-use divisors, metadata and provenance: "
        "`ninfer migrate --dry-run` lists what this file would lose"
    )
    yield from note_unofficial(artifact, found.identity.model_id)


def _note_original_migration(artifact: Artifact) -> Iterator[Finding]:
    from hashlib import sha256

    if published_v1(sha256(artifact.raw_directory()).hexdigest()) is None:
        yield notice(
            "the original project's migration takes the two published version 1 files only and "
            "this is neither; `ninfer migrate` takes it"
        )


def note_large_files(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Note files that are larger than the original converter writes them."""
    first, *rest = artifact.files
    sizes = [artifact.prefix.payload_start + first.payload_bytes]
    sizes += [PART_HEADER_BYTES + item.payload_bytes for item in rest]
    if max(sizes) > _CONVERTER_LIMIT:
        yield notice(
            f"a file of {max(sizes)} bytes is larger than the original converter writes "
            f"({_CONVERTER_LIMIT}); `ninfer migrate --to 3` splits it"
        )
