"""Whether an engine can start, before anything is read or taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from ninfer_formats.completeness import ready_problems
from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.reader import Artifact
from ninfer_runtime.config import Settings
from ninfer_runtime.engine.devices import free_memory
from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.pixel_settings import count_frame_patches
from ninfer_runtime.weights.budget import (
    Budget,
    Fit,
    Shape,
    count_parameters,
    fit,
    make_budget,
    sum_components,
)
from ninfer_runtime.weights.device_costs import MEASURED, DeviceCosts
from ninfer_runtime.weights.requantization import Requantization

_RAN_OUT = ("out of memory", "allocate memory", "cublas_status_alloc_failed")


@dataclass(frozen=True)
class MemoryPlan:
    """What an engine will take."""

    budget: Budget
    shape: Shape
    costs: DeviceCosts = MEASURED


def check_artifact(artifact: Artifact) -> None:
    """Raise one StartupError that names everything missing or broken in the directory, and every
    file of the artifact that is."""
    problems: list[NinferError] = [*ready_problems(artifact), *_find_file_problems(artifact)]
    if not problems:
        return
    if len(problems) == 1:
        what = str(problems[0])
    else:
        what = f"{len(problems)} problems: " + "; ".join(str(problem) for problem in problems)
    raise StartupError(
        what,
        path=None if str(artifact.path) in what else artifact.path,
        remedy="ninfer check FILE says more",
    )


def _find_file_problems(artifact: Artifact) -> list[NinferError]:
    found = []
    for index in range(len(artifact.files)):
        try:
            artifact.payload.header(index)
        except NinferError as error:
            found.append(error)
    return found


def shape_of(settings: Settings) -> Shape:
    """Return what of the settings decides the size of an engine."""
    return Shape(
        settings.activations.itemsize,
        settings.max_context,
        settings.lanes,
        settings.width,
        settings.prefill_chunk,
        settings.kv_kind,
        settings.pages,
        settings.decoded,
        settings.proposal_head,
        settings.vision,
        settings.cuda_graph,
        matrix_bytes=settings.dtype.itemsize,
        snapshots=settings.snapshots,
    )


def plan_memory(artifact: Artifact, geometry: ModelGeometry, settings: Settings) -> MemoryPlan:
    """Return what an engine with these settings takes."""
    shape = shape_of(settings)
    if settings.vision and geometry.vision is not None:
        shape = replace(shape, patches=count_frame_patches(artifact, geometry.vision))
    targets = Requantization(settings.requantize, geometry.text.tie_word_embeddings)
    sizes = count_parameters(artifact, shape, targets.target)
    return MemoryPlan(make_budget(geometry, shape, sum_components(sizes)), shape)


@contextmanager
def enough_memory(
    artifact: Artifact, geometry: ModelGeometry, settings: Settings
) -> Iterator[MemoryPlan]:
    """Raise StartupError with needed and available bytes when the engine does not fit, at once
    or, should the device run out all the same, from the body."""
    plan = plan_memory(artifact, geometry, settings)
    available = free_memory(settings.device)
    if available is None:
        yield plan
        return
    found = fit(geometry, plan.shape, plan.budget.weights, available)
    require_memory(artifact, found, settings.device)
    try:
        yield plan
    except RuntimeError as error:
        if not ran_out(error):
            raise
        left = _available_at_most(settings.device, found)
        short = fit(geometry, plan.shape, plan.budget.weights, left)
        raise _no_memory(artifact, short, settings.device) from None


def ran_out(error: BaseException | None) -> bool:
    """Return whether an error, or one that it hides, says that a device has no memory left.

    torch, the driver and libraries each say it in their own way; a capture that ran out ends with
    another error on top.
    """
    while error is not None:
        text = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(part in text for part in _RAN_OUT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _available_at_most(device: torch.device, found: Fit) -> int:
    """Return what there was for an engine that ran out of memory all the same: others took some
    since, or it needed more than was planned. So less than was planned has to do."""
    available = found.available
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        available = free + torch.cuda.memory_reserved(device)
    return min(available, found.needed - 1)


def require_memory(artifact: Artifact, found: Fit, device: torch.device) -> None:
    """Raise StartupError with needed and available bytes when the engine does not fit."""
    if not found.fits:
        raise _no_memory(artifact, found, device)


def _no_memory(artifact: Artifact, found: Fit, device: torch.device) -> StartupError:
    return StartupError(
        f"not enough memory: needs {found.needed} bytes, {found.available} are available",
        path=artifact.path, where=str(device), remedy=found.remedy,
    )  # fmt: skip
