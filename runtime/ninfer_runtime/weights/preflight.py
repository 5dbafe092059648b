"""Whether an engine can start, before anything is read or taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ninfer_formats.completeness import ready_problems
from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.reader import Artifact
from ninfer_runtime.config import Settings
from ninfer_runtime.engine.devices import free_memory
from ninfer_runtime.errors import StartupError
from ninfer_runtime.weights.budget import Fit, Shape, count_weights, fit
from ninfer_runtime.weights.requantization import Requantization


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
        settings.dtype.itemsize,
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
    )


def measure_fit(
    artifact: Artifact, geometry: ModelGeometry, settings: Settings, available: int
) -> Fit:
    """Return whether an engine with these settings fits `available` bytes, and what would."""
    shape = shape_of(settings)
    plan = Requantization(settings.requantize, geometry.text.tie_word_embeddings)
    weights = count_weights(artifact, shape, plan.target)
    return fit(geometry, shape, weights, available)


@contextmanager
def enough_memory(
    artifact: Artifact, geometry: ModelGeometry, settings: Settings
) -> Iterator[None]:
    """Raise StartupError with needed and available bytes when the engine does not fit, at once
    or, should the device run out all the same, from the body."""
    available = free_memory(settings.device)
    if available is None:
        yield
        return
    found = measure_fit(artifact, geometry, settings, available)
    require_memory(artifact, found, settings.device)
    try:
        yield
    except torch.OutOfMemoryError:
        raise _no_memory(artifact, found, settings.device) from None


def require_memory(artifact: Artifact, found: Fit, device: torch.device) -> None:
    """Raise StartupError with needed and available bytes when the engine does not fit."""
    if not found.fits:
        raise _no_memory(artifact, found, device)


def _no_memory(artifact: Artifact, found: Fit, device: torch.device) -> StartupError:
    return StartupError(
        f"not enough memory: needs {found.needed} bytes, {found.available} are available",
        path=artifact.path, where=str(device), remedy=found.remedy,
    )  # fmt: skip
