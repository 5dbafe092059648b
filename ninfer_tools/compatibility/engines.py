"""The engines known by name, and the verdict of each on an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Identity
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import DFLASH, DRAFTERS
from ninfer_formats.inventories.registered import IDENTITIES
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.completeness_rules import check_completeness
from ninfer_tools.compatibility.component_rules import check_components
from ninfer_tools.compatibility.container_rules import check_container, note_large_files
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.group_rules import check_groups
from ninfer_tools.compatibility.identity_rules import check_descriptors, check_identity
from ninfer_tools.compatibility.proposal_rules import check_proposal
from ninfer_tools.compatibility.published_rules import note_published
from ninfer_tools.compatibility.readiness import THIS, check_readiness
from ninfer_tools.compatibility.resource_rules import check_contents, check_frontend
from ninfer_tools.compatibility.tensor_rules import check_divisors_member, check_tensors
from ninfer_tools.compatibility.verdict import REASON, Finding, Verdict, sum_up

ALL = "all"

_V1_IDENTITIES = frozenset(
    Identity(model_id, "groupwise-int") for model_id in ("qwen3.6-27b", "qwen3.6-35b-a3b")
)
_V2_IDENTITIES = frozenset(Identity(*pair) for pair in IDENTITIES)
_V1_FORMATS = frozenset(f.name for f in nf.FORMATS.values() if f.oldest == 1)
_ALL_FORMATS = frozenset(nf.FORMATS)

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(
                "upstream-v1",
                1,
                _V1_FORMATS,
                frozenset({DFLASH}),
                "artifact magic is not NInfer v1",
                _V1_IDENTITIES,
            ),
            Engine(
                "upstream-v2",
                2,
                _ALL_FORMATS,
                frozenset({DFLASH}),
                "artifact magic is not NInfer v2",
                _V2_IDENTITIES,
            ),
            Engine(
                "upstream-v2-dflash2",
                2,
                _ALL_FORMATS,
                frozenset(DRAFTERS),
                "artifact magic is not NInfer v2",
                _V2_IDENTITIES,
            ),
            Engine(
                "upstream-v3",
                3,
                _ALL_FORMATS,
                frozenset(DRAFTERS),
                "expected NInfer v3 entry magic",
            ),
        )
    }
)
ENGINE_NAMES = (*ENGINES, THIS)

Rule = Callable[[Artifact, Engine], Iterator[Finding]]

_LEGACY_RULES: tuple[Rule, ...] = (
    check_identity,
    check_groups,
    check_descriptors,
    check_tensors,
    check_frontend,
    note_published,
)
_V3_RULES: tuple[Rule, ...] = (
    check_divisors_member,
    check_components,
    check_completeness,
    check_proposal,
    check_tensors,
    check_contents,
    note_large_files,
    note_published,
)


def judge(artifact: Artifact, engine: str) -> Verdict:
    """Return the verdict of an engine of `ENGINE_NAMES` on an opened artifact.

    The directory decides; of the payload only frontend files, divisors and part headers are read.
    Raises UsageError for another name.
    """
    if engine not in ENGINE_NAMES:
        raise UsageError("unknown engine", got=engine, want=", ".join((*ENGINE_NAMES, ALL)))
    return sum_up(engine, _find(artifact, engine))


def judge_briefly(artifact: Artifact) -> tuple[Verdict, ...]:
    """Return the verdict of every engine with the first reason only and no way out: finding the
    way out takes many times longer than the verdict."""
    return tuple(
        sum_up(name, _until_reason(_find(artifact, name)), with_remedies=False)
        for name in ENGINE_NAMES
    )


def judge_all(artifact: Artifact) -> tuple[Verdict, ...]:
    """Return the verdict of every engine."""
    return tuple(judge(artifact, name) for name in ENGINE_NAMES)


def _find(artifact: Artifact, engine: str) -> Iterable[Finding]:
    if engine == THIS:
        return check_readiness(artifact)
    return _apply_rules(artifact, ENGINES[engine])


def _until_reason(findings: Iterable[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        if finding.kind == REASON:
            return


def _apply_rules(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    if artifact.version != engine.container:
        yield from check_container(artifact, engine)
        return
    for rule in _LEGACY_RULES if engine.is_legacy else _V3_RULES:
        yield from rule(artifact, engine)
