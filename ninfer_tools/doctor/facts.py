"""What there is on a machine, gathered without loading torch into this process."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBE_SECONDS = 8.0

# torch is looked at from outside: a broken installation may hang, or end the process.
_PROBE = """
import json, torch
found = {"cuda": torch.version.cuda, "devices": []}
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        found["devices"].append({
            "name": torch.cuda.get_device_name(index),
            "capability": torch.cuda.get_device_capability(index),
            "free": free, "total": total,
        })
print(json.dumps(found))
"""
_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total,memory.free",
        "--format=csv,noheader,nounits")  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """A GPU as torch sees it; bytes."""

    name: str
    capability: tuple[int, int]
    free: int
    total: int


@dataclass(frozen=True)
class Torch:
    """An installed torch: the CUDA version it was built for, and its GPUs. `failure` is what it
    said when it could not be loaded."""

    version: str
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class Facts:
    """What checks are made of. `wants_triton` is the version that torch asks for; `driver` and
    `cards` are what nvidia-smi says, None and empty without it. Bytes."""

    python: str
    torch: Torch | None
    triton: str | None
    wants_triton: str | None
    driver: str | None
    cards: tuple[str, ...]
    compiler: str | None
    headers: bool
    cache: Path
    cache_writable: bool
    disk_free: int
    memory_free: int | None


def gather_facts(environment: Mapping[str, str] = os.environ) -> Facts:
    """Look at this machine; takes no longer than `PROBE_SECONDS` and a little."""
    from ninfer_runtime.engine.devices import find_compiler, free_host_memory, has_headers

    with ThreadPoolExecutor(2) as pool:
        torch, smi = pool.submit(probe_torch), pool.submit(query_driver)
        driver, cards = smi.result()
        found = torch.result()
    named = environment.get("TRITON_CACHE_DIR")
    cache = Path(named) if named else Path.home() / ".triton" / "cache"
    parent = _existing(cache)
    return Facts(
        python=sys.version.split()[0],
        torch=found,
        triton=_installed("triton"),
        wants_triton=_required_triton(),
        driver=driver,
        cards=cards,
        compiler=find_compiler(),
        headers=has_headers(),
        cache=cache,
        cache_writable=parent.is_dir() and os.access(parent, os.W_OK | os.X_OK),
        disk_free=shutil.disk_usage(parent).free,
        memory_free=free_host_memory(),
    )


def probe_torch() -> Torch | None:
    """Return what a process of its own says about torch, None when it is not installed."""
    version = _installed("torch")
    if version is None:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Torch(version, failure=f"no answer in {PROBE_SECONDS:.0f} s")
    return read_probe(version, done.returncode, done.stdout, done.stderr)


def read_probe(version: str, code: int, out: str, err: str) -> Torch:
    """Return what the probe's answer says."""
    if code != 0:
        lines = [line for line in err.splitlines() if line.strip()]
        return Torch(version, failure=lines[-1] if lines else f"it ended with code {code}")
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    gpus = tuple(
        Gpu(item["name"], (item["capability"][0], item["capability"][1]), item["free"],
            item["total"])
        for item in answer["devices"]
    )  # fmt: skip
    return Torch(version, answer["cuda"], gpus)


def query_driver() -> tuple[str | None, tuple[str, ...]]:
    """Return the version of the NVIDIA driver and its GPUs, None and nothing without one."""
    try:
        done = subprocess.run(_SMI, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None, ()
    return read_driver(done.stdout) if done.returncode == 0 else (None, ())


def read_driver(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Return what nvidia-smi's table says."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 5]
    return (rows[0][1] if rows else None), tuple(row[0] for row in rows)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _required_triton() -> str | None:
    """Return the triton version that the installed torch pins, None when it pins none."""
    try:
        wanted = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return find_pin(wanted)


def find_pin(requirements: list[str]) -> str | None:
    """Return 3.6.0 of `triton==3.6.0; platform_system == "Linux"`."""
    for item in requirements:
        name, found, version = item.partition(";")[0].partition("==")
        if found and name.strip() == "triton":
            return version.strip()
    return None


def _existing(path: Path) -> Path:
    """Return the folder itself, or the first above it that exists."""
    return next(item for item in (path, *path.parents) if item.exists())
