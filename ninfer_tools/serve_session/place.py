"""Where an engine is to run, and what is free there."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.serve_session.problems import StartProblems


@dataclass(frozen=True)
class Place:
    """`device` is what the engine is told; `free` bytes can be taken, None: not known."""

    device: str
    free: int | None

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


def find_place(device: str) -> Place:
    """Return the place that `--device` means here.

    StartProblems for a GPU that cannot be used, UsageError for another word.
    """
    import torch

    from ninfer_runtime.engine.devices import free_host_memory

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    _require_device(device)
    if device == "cpu":
        return Place("cpu", free_host_memory())
    return Place(device, _measure_apart(device))


def imagine_place(device: str, memory: int | None) -> Place:
    """Return the place to plan for; a GPU need not be there.

    With `memory` that much is free, and `auto` means a GPU.
    """
    import torch

    if memory is not None:
        device = "cuda" if device == "auto" else device
        _require_device(device)
        return Place(device, memory)
    if device not in ("auto", "cpu") and not torch.cuda.is_available():
        _require_device(device)
        return Place(device, None)
    return find_place(device)


def _require_device(name: str) -> None:
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and number.isdigit())):
        raise UsageError("--device cannot be used", got=name, want="auto, cpu, cuda or cuda:N")


def _measure_apart(device: str) -> int:
    """Return the free bytes of a GPU, measured in a process of its own: what a process needs to
    speak to a GPU stays there until it ends."""
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            free, problems = pool.submit(measure_gpu, device).result()
    except BrokenProcessPool:
        raise NinferError("the GPU cannot be asked: the process that did has died") from None
    if problems:
        raise StartProblems([NinferError(problem, remedy=remedy) for problem, remedy in problems])
    return free


def measure_gpu(device: str) -> tuple[int, list[tuple[str, str | None]]]:
    """Return the free bytes of a GPU, and what keeps kernels from running on it as text and
    remedy."""
    import torch

    from ninfer_runtime.engine.devices import find_support_problems, free_memory, read_gpu_facts

    try:
        found = torch.device(device)
        torch.empty(1, device=found)
        problems = find_support_problems(read_gpu_facts(found))
        free = free_memory(found) or 0
    except (RuntimeError, AssertionError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return 0, [(f"device cannot be used: {lines[0]}", "use --device cpu")]
    texts = []
    for problem in problems:
        remedy, problem.remedy = problem.remedy, None
        texts.append((str(problem), remedy))
    return free, texts
