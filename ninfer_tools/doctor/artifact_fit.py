"""Whether an artifact fits a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_formats.completeness import ready_problems
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_bytes
from ninfer_tools.doctor.checks import NOTICE, OK, PROBLEM, Check
from ninfer_tools.doctor.facts import Facts

if TYPE_CHECKING:
    from ninfer_runtime.weights.budget import Shape

KV_KINDS = ("auto", "fp32", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Plan:
    """What an engine is to do: the options of `ninfer run` that decide its size; `max_context`
    None: what the model has, up to 8192; `vision` None: the tower if there is one."""

    max_context: int | None = None
    lanes: int = 1
    kv_dtype: str = "auto"
    spec: str | None = None
    draft_tokens: int | None = None
    lm_head_draft: bool = False
    vision: bool | None = None


@dataclass(frozen=True)
class _Place:
    """A device an engine can be on; `option` chooses it."""

    name: str
    option: str
    free: int | None
    is_gpu: bool


def check_artifact_fit(artifact: Artifact, facts: Facts, plan: Plan) -> list[Check]:
    """Return whether the artifact is whole, and whether an engine of it fits every GPU, or the
    memory of the processor where there is none. The first GPU is the one that is used unasked."""
    _check_plan(plan)
    problems = ready_problems(artifact)
    if problems:
        text = "; ".join(str(problem) for problem in problems)
        return [Check("artifact", PROBLEM, text, "ninfer check FILE says more")]
    size = format_bytes(artifact.file_bytes)
    whole = Check("artifact", OK, f"{Path(artifact.path).name}, {size}, whole")
    try:
        geometry = read_geometry(artifact)
        return [whole, *_check_places(artifact, geometry, _list_places(facts), plan)]
    except NinferError as error:
        remedy = error.remedy or "convert the checkpoint again, or repair the file"
        error.remedy = None
        return [whole, Check("fit", PROBLEM, str(error), remedy)]


def _check_plan(plan: Plan) -> None:
    from ninfer_runtime.engine.speculators import require_speculator

    if plan.kv_dtype not in KV_KINDS:
        raise UsageError("KV type is not known", got=plan.kv_dtype, want=", ".join(KV_KINDS))
    if plan.spec is not None:
        require_speculator(plan.spec)
    elif plan.draft_tokens is not None or plan.lm_head_draft:
        raise UsageError("drafts need a speculator", remedy="add --spec mtp")


def read_geometry(artifact: Artifact) -> ModelGeometry:
    return geometry_from_components({c.name: c.config for c in artifact.components.values()})


def _list_places(facts: Facts) -> list[_Place]:
    gpus = facts.torch.gpus if facts.torch is not None else ()
    if not gpus:
        return [_Place("processor", "--device cpu", facts.memory_free, False)]
    return [_Place(gpu.name, f"--device cuda:{i}", gpu.free, True) for i, gpu in enumerate(gpus)]


def _check_places(
    artifact: Artifact, geometry: ModelGeometry, places: list[_Place], plan: Plan
) -> list[Check]:
    checks = [_check_fit(artifact, geometry, place, plan) for place in places]
    fitting = [place for place, check in zip(places, checks, strict=True) if check.state == OK]
    for i in range(1, len(checks)):
        text = f"{places[i].option}: {checks[i].text}"
        checks[i] = replace(checks[i], text=text, state=OK if checks[i].state == OK else NOTICE)
    if checks[0].state == PROBLEM and fitting:
        remedy = f"{fitting[0].option}; here {checks[0].remedy}"
        checks[0] = replace(checks[0], state=NOTICE, remedy=remedy)
    if geometry.mtp and plan.spec is None:
        drafted = _check_fit(artifact, geometry, places[0], replace(plan, spec="mtp"))
        state = OK if drafted.state == OK else NOTICE
        text = f"--spec mtp: {drafted.text}"
        checks.append(replace(drafted, name="drafts", text=text, state=state))
    return checks


def _check_fit(artifact: Artifact, geometry: ModelGeometry, place: _Place, plan: Plan) -> Check:
    from ninfer_runtime.weights.budget import count_weights, fit, make_budget

    longest = geometry.text.max_position_embeddings
    context = min(8192, longest) if plan.max_context is None else plan.max_context
    if context > longest:
        return Check(
            "fit", PROBLEM, f"the model's context is {longest} tokens", f"--max-context {longest}"
        )
    shape = _make_shape(artifact, geometry, place, plan, context)
    weights = count_weights(artifact, shape)
    needed = make_budget(geometry, shape, weights).total
    if place.free is None:
        return Check("fit", NOTICE, f"needs {needed} bytes; what is free is not known")
    found = fit(geometry, shape, weights, place.free)
    text = _describe(found.needed, place.free, place.name, context, plan.lanes)
    parts = ", ".join(weights)
    if found.fits:
        longest_text = f", with {parts}; up to --max-context {found.max_context}"
        return Check("fit", OK, text + longest_text)
    return Check("fit", PROBLEM, f"{text}, with {parts}", found.remedy)


def _make_shape(
    artifact: Artifact, geometry: ModelGeometry, place: _Place, plan: Plan, context: int
) -> Shape:
    """Return the shape of an engine; UsageError for a component that the artifact lacks."""
    from ninfer_runtime.frontend.pixel_settings import count_frame_patches
    from ninfer_runtime.weights.budget import Shape

    if plan.spec is not None and not geometry.mtp:
        raise UsageError("the artifact has no MTP head", remedy="leave --spec mtp out")
    if plan.lm_head_draft and "proposal/head" not in artifact.bindings:
        raise UsageError(
            "the artifact has no proposal head", remedy="convert it again with --proposal-rows N"
        )
    if plan.vision and geometry.vision is None:
        raise UsageError("the artifact has no vision tower", remedy="leave --vision out")
    tower = geometry.vision if plan.vision is not False else None
    kind = plan.kv_dtype if plan.kv_dtype != "auto" else "bf16" if place.is_gpu else "fp32"
    drafts = 0 if plan.spec is None else plan.draft_tokens or 3
    return Shape(
        2 if place.is_gpu else 4, context, plan.lanes, 1 + drafts, 1024, kind,
        decoded=not place.is_gpu, proposal=plan.lm_head_draft, vision=tower is not None,
        cuda_graph=place.is_gpu, patches=count_frame_patches(artifact, tower) if tower else 0,
    )  # fmt: skip


def _describe(needed: int, available: int, place: str, context: int, lanes: int) -> str:
    return (
        f"needs {needed} bytes ({format_bytes(needed)}), {available} "
        f"({format_bytes(available)}) are free: {place}, "
        f"{context} tokens of context, {lanes} at once"
    )
