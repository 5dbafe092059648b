"""Whether an artifact fits a machine."""

from __future__ import annotations

from pathlib import Path

from ninfer_formats.completeness import ready_problems
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_bytes
from ninfer_tools.doctor.checks import NOTICE, OK, PROBLEM, Check
from ninfer_tools.doctor.facts import Facts

KV_KINDS = ("auto", "fp32", "bf16", "fp8", "int8")


def check_artifact_fit(
    artifact: Artifact, facts: Facts, max_context: int | None, lanes: int, kv_dtype: str
) -> list[Check]:
    """Return whether the artifact is whole, and whether an engine of it fits the first GPU, or
    the memory of the processor where there is none."""
    if kv_dtype not in KV_KINDS:
        raise UsageError("KV type is not known", got=kv_dtype, want=", ".join(KV_KINDS))
    problems = ready_problems(artifact)
    if problems:
        text = "; ".join(str(problem) for problem in problems)
        return [Check("artifact", PROBLEM, text, "ninfer check FILE says more")]
    size = format_bytes(artifact.file_bytes)
    return [
        Check("artifact", OK, f"{Path(artifact.path).name}, {size}, whole"),
        _check_fit(artifact, facts, max_context, lanes, kv_dtype),
    ]


def _check_fit(
    artifact: Artifact, facts: Facts, max_context: int | None, lanes: int, kv_dtype: str
) -> Check:
    from ninfer_runtime.weights.budget import Shape, count_weights, fit, make_budget

    geometry = geometry_from_components({c.name: c.config for c in artifact.components.values()})
    gpus = facts.torch.gpus if facts.torch is not None else ()
    available, place = (gpus[0].free, gpus[0].name) if gpus else (facts.memory_free, "processor")
    longest = geometry.text.max_position_embeddings
    context = min(8192, longest) if max_context is None else max_context
    if context > longest:
        return Check(
            "fit", PROBLEM, f"the model's context is {longest} tokens", f"--max-context {longest}"
        )
    kind = kv_dtype if kv_dtype != "auto" else "bf16" if gpus else "fp32"
    shape = Shape(
        2 if gpus else 4, context, lanes, 1, 1024, kind,
        decoded=not gpus, vision=geometry.vision is not None, cuda_graph=bool(gpus),
    )  # fmt: skip
    weights = count_weights(artifact, shape)
    needed = make_budget(geometry, shape, weights).total
    if available is None:
        return Check("fit", NOTICE, f"needs {needed} bytes; what is free is not known")
    found = fit(geometry, shape, weights, available)
    text = _describe(found.needed, available, place, context, lanes)
    if found.fits:
        longest_text = f"; up to --max-context {found.max_context}"
        return Check("fit", OK, text + longest_text)
    return Check("fit", PROBLEM, text, found.remedy)


def _describe(needed: int, available: int, place: str, context: int, lanes: int) -> str:
    return (
        f"needs {needed} bytes ({format_bytes(needed)}), {available} "
        f"({format_bytes(available)}) are free: {place}, "
        f"{context} tokens of context, {lanes} at once"
    )
