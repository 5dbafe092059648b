"""What facts about a machine mean for an engine, and the way out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ninfer_tools.console import format_bytes
from ninfer_tools.doctor.facts import Facts

OK, NOTICE, PROBLEM = "ok", "notice", "problem"
_LEAST_CACHE = 1 << 30


@dataclass(frozen=True)
class Check:
    """One finding. A PROBLEM keeps the engine from running; a NOTICE does not."""

    name: str
    state: str
    text: str
    remedy: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)


def check_machine(facts: Facts) -> list[Check]:
    """Return what was found, one check a subject."""
    checks = [_check_torch(facts), _check_gpu(facts), _check_pairing(facts)]
    checks += _check_toolchain(facts)
    return [*checks, _check_cache(facts), _check_disk(facts), _check_memory(facts)]


def _check_torch(facts: Facts) -> Check:
    torch = facts.torch
    if torch is None:
        return Check(
            "torch", PROBLEM, "not installed: the engine needs it, inspecting and checking do not",
            "pip install 'ninfer[serve]'",
        )  # fmt: skip
    if torch.failure is not None:
        text = f"{torch.version} cannot be loaded: {torch.failure}"
        return Check(
            "torch", PROBLEM, text, "install it again: pip install --force-reinstall torch"
        )
    built = f"CUDA {torch.cuda}" if torch.cuda else "processors only"
    return Check("torch", OK, f"{torch.version} for {built}, Python {facts.python}")


def _check_gpu(facts: Facts) -> Check:
    torch = facts.torch
    if torch is not None and torch.gpus:
        gpus = "; ".join(
            f"{gpu.name}, sm_{gpu.capability[0]}{gpu.capability[1]}, "
            f"{format_bytes(gpu.free)} of {format_bytes(gpu.total)} free"
            for gpu in torch.gpus
        )
        driver = f", driver {facts.driver}" if facts.driver else ""
        return Check("GPU", OK, gpus + driver)
    if not facts.cards:
        return Check("GPU", NOTICE, "none: the engine runs on the processor (--device cpu), slowly")
    seen = f"{', '.join(facts.cards)} (driver {facts.driver})"
    if torch is None or torch.failure is not None:
        return Check("GPU", NOTICE, f"{seen}; torch cannot say whether it can use it")
    if torch.cuda is None:
        return Check(
            "GPU", PROBLEM, f"{seen}; this torch was built for processors only",
            "install a torch with CUDA, or use --device cpu",
        )  # fmt: skip
    return Check(
        "GPU", PROBLEM, f"{seen}; torch for CUDA {torch.cuda} cannot use it",
        "update the NVIDIA driver, or install a torch for an older CUDA",
    )  # fmt: skip


def _uses_gpu(facts: Facts) -> bool:
    return bool(facts.cards) or (facts.torch is not None and bool(facts.torch.gpus))


def _check_pairing(facts: Facts) -> Check:
    if facts.triton is None:
        state = PROBLEM if _uses_gpu(facts) else NOTICE
        return Check("triton", state, "not installed: GPUs need it", "pip install 'ninfer[serve]'")
    wanted = facts.wants_triton
    if wanted is not None and wanted != facts.triton.partition("+")[0]:
        return Check(
            "triton", NOTICE, f"{facts.triton}, but torch was made for {wanted}",
            f"if kernels fail to compile: pip install triton=={wanted}",
        )  # fmt: skip
    return Check("triton", OK, facts.triton)


def _check_toolchain(facts: Facts) -> list[Check]:
    """Compiler and headers, which only a GPU's kernels need, and what else keeps them away."""
    from ninfer_runtime.engine.devices import GpuFacts, find_support_problems

    gpus = facts.torch.gpus if facts.torch is not None else ()
    found = [
        problem
        for gpu in gpus
        for problem in find_support_problems(GpuFacts(gpu.name, gpu.capability, True, "", True))
    ]
    state = PROBLEM if _uses_gpu(facts) else NOTICE
    support = find_support_problems(GpuFacts("", (8, 0), True, facts.compiler, facts.headers))
    checks = [
        Check("GPU", PROBLEM, f"{p.where}: {p.what} ({p.got}, want {p.want})", p.remedy)
        for p in found
    ]
    checks += [Check("compiler", state, problem.what, problem.remedy) for problem in support]
    if not support:
        checks.append(Check("compiler", OK, f"{facts.compiler}, with Python headers"))
    return checks


def _check_cache(facts: Facts) -> Check:
    if facts.cache_writable:
        return Check("cache", OK, f"{facts.cache} can be written")
    return Check(
        "cache", PROBLEM if _uses_gpu(facts) else NOTICE, f"{facts.cache} cannot be written",
        "set TRITON_CACHE_DIR to a folder that can",
    )  # fmt: skip


def _check_disk(facts: Facts) -> Check:
    text = f"{format_bytes(facts.disk_free)} free for compiled kernels"
    if facts.disk_free >= _LEAST_CACHE:
        return Check("disk", OK, text)
    return Check("disk", NOTICE, text, "free some, or set TRITON_CACHE_DIR to another disk")


def _check_memory(facts: Facts) -> Check:
    if facts.memory_free is None:
        return Check("memory", NOTICE, "this system does not say how much is free")
    return Check("memory", OK, f"{format_bytes(facts.memory_free)} free")
