"""What the engine asks of a device, and settings of torch that its numbers depend on."""

from __future__ import annotations

import os
import shutil
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_runtime.errors import StartupError

if TYPE_CHECKING:
    import torch

OLDEST_CAPABILITY = (8, 0)
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class GpuFacts:
    """What decides whether kernels run on a GPU; `compiler` is its path, None for none."""

    name: str
    capability: tuple[int, int]
    triton: bool
    compiler: str | None
    headers: bool


def prepare_device(device: torch.device) -> None:
    """Check the device, and keep sums of products in float32 on a GPU (rule N-10).

    StartupError for a GPU that no kernel runs on, or when kernels cannot be compiled.
    """
    if device.type != "cuda":
        return
    import torch

    require_support(read_gpu_facts(device))
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_tf32 = False


def require_support(facts: GpuFacts) -> None:
    """Raise StartupError, one line, for the first thing that keeps kernels from running."""
    for problem in find_support_problems(facts):
        raise problem


def find_support_problems(facts: GpuFacts) -> list[StartupError]:
    """Return everything that keeps kernels from running on a GPU (rule MEM-18)."""
    problems = []
    if facts.capability < OLDEST_CAPABILITY:
        got, want = (".".join(map(str, c)) for c in (facts.capability, OLDEST_CAPABILITY))
        problems.append(
            StartupError(
                "this GPU is not supported", where=facts.name, got=f"compute capability {got}",
                want=f"{want} or later", remedy="use --device cpu",
            )
        )  # fmt: skip
    if not facts.triton:
        problems.append(
            StartupError("triton is not installed", remedy="pip install 'ninfer[serve]'")
        )
    if facts.compiler is None:
        problems.append(
            StartupError(
                "no C compiler, which Triton needs to start kernels", want=" or ".join(_COMPILERS),
                remedy="install gcc (Debian, Ubuntu: apt install gcc), or use --device cpu",
            )
        )  # fmt: skip
    if not facts.headers:
        remedy = "install them (Debian, Ubuntu: apt install python3-dev), or use --device cpu"
        problems.append(
            StartupError(
                "no Python headers, which Triton needs to start kernels",
                want="Python.h", remedy=remedy,
            )
        )  # fmt: skip
    return problems


def read_gpu_facts(device: torch.device) -> GpuFacts:
    import torch

    name, capability = (
        torch.cuda.get_device_name(device),
        torch.cuda.get_device_capability(device),
    )
    return GpuFacts(
        name, capability, find_spec("triton") is not None, find_compiler(), has_headers()
    )


def has_headers() -> bool:
    """Return whether extensions of this Python can be compiled."""
    return (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()


def find_compiler() -> str | None:
    """Return the C compiler Triton takes: that of CC, or the first that is installed."""
    named = os.environ.get("CC")
    if named:
        return shutil.which(named)
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that can be taken on a device, None where that is not known."""
    if device.type != "cuda":
        return free_host_memory()
    import torch

    reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + reusable


def free_host_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that programs can take, None where the system does not say.

    A container may have less than its machine.
    """
    free = _read_field(root / "proc/meminfo", "MemAvailable:")
    if free is None:
        return None
    group = root / "sys/fs/cgroup"
    limit, used = (_read_number(group / name) for name in ("memory.max", "memory.current"))
    if limit is None or used is None:
        return free * 1024
    # Cached pages of files count as used, and go when memory is wanted.
    cached = _read_field(group / "memory.stat", "inactive_file") or 0
    return min(free * 1024, max(0, limit - used + cached))


def _read_field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), None)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None
