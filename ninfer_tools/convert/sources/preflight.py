"""What is known to be wrong before conversion starts (rules S-3, S-61 to S-66, S-70 to S-75)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.geometry import DRAFTERS, ModelGeometry
from ninfer_tools.convert.sources import prefixes
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.companion_checks import find_useless_companions
from ninfer_tools.convert.sources.frontend_notices import list_odd_frontend
from ninfer_tools.convert.sources.geometry_reading import has_mtp, read_geometry
from ninfer_tools.convert.sources.mapping import SOURCE_NAMES, SourceMap, map_sources
from ninfer_tools.convert.sources.name_lists import name_some, shorten_problems
from ninfer_tools.convert.sources.resource_checks import find_bad_resources
from ninfer_tools.convert.sources.resources import ROLES
from ninfer_tools.convert.sources.scale_checks import find_bad_scales
from ninfer_tools.convert.sources.token_table import TokenTable, read_token_table

_NONE: Mapping[str, str] = MappingProxyType({})
COMPONENTS = ("text", "mtp", "vision", *DRAFTERS)


@dataclass(frozen=True)
class Preflight:
    """What will be converted, and what forbids it.

    `geometry` has exactly the chosen `components` (file order); both and `sources` are None or
    empty when config.json cannot be read. `tokens` are those of the tokenizer files. Conversion
    may start when `problems` is empty.
    """

    geometry: ModelGeometry | None
    components: tuple[str, ...]
    sources: SourceMap | None
    problems: tuple[NinferError, ...]
    notices: tuple[str, ...]
    tokens: TokenTable = field(default_factory=TokenTable)


def find_problems(
    checkpoints: Mapping[str, Checkpoint],
    components: Collection[str] | None = None,
    proposal_ids: NDArray[Any] | None = None,
    resources: Mapping[str, bytes] | None = None,
    read_scales: bool = True,
    resource_paths: Mapping[str, str] = _NONE,
) -> Preflight:
    """Check checkpoints (keys as in `map_sources`) against each other and their own configs.

    `components` None means everything that is found. `resources` are files that replace those of
    the base checkpoint, `resource_paths` what messages call them. Without `read_scales` nothing but
    headers, config and frontend files is read, and bad scales stay undetected. NaN and infinity are
    found later, while weights stream. Raises UsageError for an unknown source or component name, or
    without a base.
    """
    _check_names(checkpoints, components)
    problems = [p for checkpoint in checkpoints.values() for p in checkpoint.problems]
    notices = [f"{c.label}: {n}" for c in checkpoints.values() for n in c.notices]
    reading = read_geometry(checkpoints)
    problems += reading.problems
    notices += reading.notices
    base = checkpoints["base"]
    if reading.geometry is None:
        return Preflight(None, (), None, shorten_problems(problems), tuple(notices))
    problems += _check_prefix(base)
    chosen = _choose(reading.geometry, checkpoints, components, problems, notices)
    geometry = _trim(reading.geometry, chosen)
    found = map_sources(geometry, chosen, checkpoints, proposal_ids)
    problems += found.problems
    if found.unplaced:
        names = name_some(found.unplaced)
        notices.append(f"{len(found.unplaced):,} tensors are of no known component: {names}")
    problems += find_useless_companions(checkpoints, found)
    if read_scales:
        faint: list[str] = []
        problems += find_bad_scales(found.sources.values(), faint)
        if faint:
            notices.append(f"global scales that leave no weight above 1e-30: {name_some(faint)}")
    given = {**base.resources, **(resources or {})}
    paths = {role: base.files.path(role) for role in ROLES} | dict(resource_paths)
    faulty = {str(problem.path) for problem in base.problems}
    problems += find_bad_resources(given, paths, geometry, chosen, faulty)
    # Read once for all: a real vocabulary takes most of a second.
    tokens = read_token_table(given, paths, geometry.text.vocab_size)
    problems += tokens.problems
    notices += list_odd_frontend(base.config, given, geometry.text.vocab_size)
    return Preflight(geometry, chosen, found, shorten_problems(problems), tuple(notices), tokens)


def _check_names(checkpoints: Mapping[str, Checkpoint], components: Collection[str] | None) -> None:
    for what, names, known in (
        ("unknown source", checkpoints, SOURCE_NAMES),
        ("unknown component", components or (), COMPONENTS),
    ):
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise UsageError(what, got=", ".join(unknown), want=", ".join(known))
    if "base" not in checkpoints:
        raise UsageError("no base checkpoint")


def _check_prefix(base: Checkpoint) -> list[NinferError]:
    found = base.prefixes
    if base.problems or len(found.texts) == 1:
        return []
    what = "text weights lie under two prefixes" if found.texts else "no text weights were found"
    got = ", ".join(found.texts or found.seen) or "no tensor"
    want = f"one of {', '.join(prefixes.TEXT)}"
    return [NinferError(what, path=base.label, got=got, want=want)]


def _choose(
    geometry: ModelGeometry,
    checkpoints: Mapping[str, Checkpoint],
    asked: Collection[str] | None,
    problems: list[NinferError],
    notices: list[str],
) -> tuple[str, ...]:
    """Return the components to convert; what cannot be becomes a problem or a notice."""
    present = _present(geometry, checkpoints)
    if asked is None:
        notices += [
            f"config.json announces {name}, but the checkpoint has no tensor of it: it is left out"
            for name in ("mtp", "vision")
            if name in geometry.components and name not in present
        ]
        if geometry.vision is None and checkpoints["base"].prefixes.vision:
            notices.append("there are vision tensors, but no vision_config: they are left out")
        return present
    chosen = tuple(name for name in COMPONENTS if name in asked)
    if "text" not in chosen:
        raise UsageError("component text is required", got=", ".join(chosen) or "none")
    buildable = {*geometry.components, "mtp"}
    for name in chosen:
        if name not in buildable:
            remedy = f"add --source {name}=<its checkpoint>" if name in DRAFTERS else None
            got = "no checkpoint" if name in DRAFTERS else "no vision_config in config.json"
            what = f"component {name} asked for, and nothing describes it"
            problems.append(NinferError(what, got=got, remedy=remedy))
    return tuple(name for name in chosen if name in buildable)


def _present(geometry: ModelGeometry, checkpoints: Mapping[str, Checkpoint]) -> tuple[str, ...]:
    found = {"text"}
    found |= {"mtp"} if has_mtp(checkpoints) else set()
    if geometry.vision is not None and checkpoints["base"].prefixes.vision:
        found.add("vision")
    if geometry.drafter is not None:
        found.add(geometry.drafter.kind)
    return tuple(name for name in COMPONENTS if name in found)


def _trim(geometry: ModelGeometry, components: Collection[str]) -> ModelGeometry:
    drafter = geometry.drafter
    return replace(
        geometry,
        mtp="mtp" in components,
        vision=geometry.vision if "vision" in components else None,
        drafter=drafter if drafter is not None and drafter.kind in components else None,
    )
