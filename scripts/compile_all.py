#!/usr/bin/env python3
"""Compile every Triton kernel ahead of time for every GPU generation it is meant for, without one.

Collects COMPILATIONS of all `ninfer_kernels.*.kernel*` modules, compiles each for its
architectures and prints one table. Exit code 1 when one does not compile, spills registers to
memory, needs more registers than its cap, or more shared memory than the architecture has.
Results are kept by source hash and Triton version; only what changed is compiled again.

Uses the installed Triton, or every one named with --triton: a version or "newest", installed into
build/triton when it is missing (scripts/compile_all names 3.6.0 and newest). Exit code 2 when a
version cannot be had.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triton_versions import MissingTriton, find_triton, installed_version

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_CACHE = ROOT / "build" / "compilations.json"

# Bytes of shared memory one block may use.
SHARED_MEMORY = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}

_RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True)
class Job:
    """One configuration of one kernel for one architecture."""

    module: str
    index: int
    architecture: int


@dataclass(frozen=True)
class Outcome:
    """What one job came to; `error` is empty when it compiled."""

    operation: str
    name: str
    architecture: int
    registers: int = 0
    spilled: int = 0
    shared: int = 0
    max_registers: int = 0
    seconds: float = 0.0
    error: str = ""
    key: str = ""

    def complaint(self) -> str:
        """Return what is wrong in a few words, empty when nothing is."""
        if self.error:
            return self.error
        if self.spilled:
            return f"spills {self.spilled} bytes"
        if self.registers > self.max_registers:
            return f"needs more than {self.max_registers} registers"
        limit = SHARED_MEMORY[self.architecture]
        return f"needs more than {limit} bytes of shared memory" if self.shared > limit else ""


def kernel_modules() -> list[str]:
    """Return the names of all kernel modules."""
    import ninfer_kernels

    found = pkgutil.walk_packages(ninfer_kernels.__path__, "ninfer_kernels.")
    return sorted(m.name for m in found if m.name.rpartition(".")[2].startswith("kernel"))


def plan_jobs(
    only: str | None, architectures: list[int] | None, fast: bool, fail: list[Outcome]
) -> Iterator[Job]:
    """Yield the wanted jobs; `fast`: the first configuration of every kernel and all tuned ones."""
    for module in kernel_modules():
        if only and module.split(".")[1] != only:
            continue
        compilations = getattr(importlib.import_module(module), "COMPILATIONS", None)
        if not compilations:
            fail.append(Outcome(module.split(".")[1], module, 0, error="has no COMPILATIONS"))
            continue
        seen = set()
        for index, compilation in enumerate(compilations):
            kernel = compilation.kernel.__name__
            if fast and kernel in seen and not compilation.tuned:
                continue
            seen.add(kernel)
            for architecture in architectures or compilation.architectures:
                if architecture in compilation.architectures:
                    yield Job(module, index, architecture)


def make_source(compilation: Any) -> Any:
    """Return what triton.compile takes: signature in argument order, constants, alignment."""
    from triton.compiler import ASTSource

    names = compilation.kernel.arg_names
    signature = {
        name: "constexpr" if name in compilation.constants else compilation.signature[name]
        for name in names
    }
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in compilation.divisible}
    return ASTSource(compilation.kernel, signature, dict(compilation.constants), attributes)


def run_job(job: Job, known: dict[str, dict[str, Any]]) -> Outcome:
    """Compile one job, or return the known outcome of the same source."""
    import triton

    compilation = importlib.import_module(job.module).COMPILATIONS[job.index]
    operation = job.module.split(".")[1]
    began = time.perf_counter()
    key = ""
    try:
        source = make_source(compilation)
        options = {
            "num_warps": compilation.num_warps,
            "num_stages": compilation.num_stages,
            **compilation.options,
        }
        key = f"{source.hash()} {sorted(options.items())} {triton.__version__} {job.architecture}"
        kept = known.get(key)
        if kept is not None:
            caps = {"name": compilation.name, "max_registers": compilation.max_registers}
            return Outcome(**{**kept, **caps})
        registers, spilled, shared = compile_source(source, job.architecture, options)
    except Exception as error:  # A compiler's errors have no common class.
        text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return Outcome(operation, compilation.name, job.architecture, error=text[:200])
    return Outcome(
        operation,
        compilation.name,
        job.architecture,
        registers,
        spilled,
        shared,
        compilation.max_registers,
        round(time.perf_counter() - began, 2),
        key=key,
    )


def compile_source(source: Any, architecture: int, options: dict[str, Any]) -> tuple[int, int, int]:
    """Return registers per thread, bytes spilled per thread, bytes of shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget

    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        done = subprocess.run(
            [tools / "cuobjdump", "--dump-resource-usage", cubin.name],
            capture_output=True,
            text=True,
            check=True,
        )
    found = _RESOURCES.search(done.stdout)
    if found is None:
        raise ValueError("cuobjdump prints no resource usage")
    registers, stack, _, local = map(int, found.groups())
    return registers, stack + local, int(compiled.metadata.shared)


def _prepare_process(cache_folder: str) -> None:
    # Set before triton is imported: compile, and leave the user's own cache alone.
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = cache_folder


def _run_packed(packed: tuple[Job, dict[str, dict[str, Any]]]) -> Outcome:
    return run_job(*packed)


def compile_jobs(
    jobs: list[Job], processes: int, known: dict[str, dict[str, Any]]
) -> list[Outcome]:
    """Return the outcomes of all jobs, in order."""
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes, _prepare_process, (folder,)) as pool:
            return list(pool.imap(_run_packed, ((job, known) for job in jobs), chunksize=4))


def print_table(outcomes: list[Outcome]) -> None:
    """Print one line per configuration: registers and shared memory per architecture."""
    architectures = sorted({o.architecture for o in outcomes if o.architecture})
    rows: dict[tuple[str, str], dict[int, Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault((outcome.operation, outcome.name), {})[outcome.architecture] = outcome
    columns = "  ".join(f"sm_{a:<10}" for a in architectures)
    print(f"{'operation':<18}{'configuration':<44}{columns}  (registers/shared KiB)")
    for (operation, name), cells in rows.items():
        line = "  ".join(f"{_cell(cells.get(a)):<13}" for a in architectures)
        print(f"{operation:<18}{name:<44}{line}")
    for outcome in outcomes:
        if outcome.complaint():
            where = f"{outcome.operation}: {outcome.name}, sm_{outcome.architecture}"
            print(f"FAILED {where}: {outcome.complaint()}")


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    if outcome.error:
        return "ERROR"
    mark = " !" if outcome.complaint() else ""
    return f"{outcome.registers}/{outcome.shared / 1024:.1f}{mark}"


def read_cache(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None or not path.is_file():
        return {}
    return json.loads(path.read_text())


def write_cache(path: Path | None, outcomes: list[Outcome]) -> None:
    """Keep the outcomes that compiled, without those of sources that are gone."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({o.key: asdict(o) for o in outcomes if o.key}, indent=0))


def run_versions(versions: list[str], arguments: list[str]) -> int:
    """Run this script once with every version of Triton; return the worst exit code."""
    worst = 0
    for version in versions:
        try:
            folder = find_triton(version, ROOT / "build" / "triton")
        except MissingTriton as error:
            print(error, file=sys.stderr)
            return 2
        print(f"== triton {folder.name if folder else installed_version()}", flush=True)
        path = [str(folder)] if folder else []
        path += [entry for entry in (os.environ.get("PYTHONPATH"),) if entry]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, __file__, *without_versions(arguments)]
        worst = max(worst, subprocess.run(command, env=environment).returncode)
    return worst


def without_versions(arguments: list[str]) -> list[str]:
    """Return the arguments without --triton and its values."""
    left, rest = [], iter(arguments)
    for argument in rest:
        if argument == "--triton":
            next(rest)
        elif not argument.startswith("--triton="):
            left.append(argument)
    return left


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--only", metavar="OP", help="kernels of one operation")
    parser.add_argument("--architectures", metavar="80,90", help="default: those of each kernel")
    parser.add_argument(
        "--fast", action="store_true", help="one configuration per kernel, and the tuned ones"
    )
    parser.add_argument(
        "--triton", metavar="VERSION", action="append", help='such as 3.6.0, or "newest"'
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write it")
    arguments = parser.parse_args()
    os.environ.pop("TRITON_INTERPRET", None)
    if arguments.triton:
        return run_versions(arguments.triton, sys.argv[1:])
    import triton

    cache = None if arguments.no_cache else arguments.cache
    wanted = arguments.architectures
    outcomes: list[Outcome] = []
    architectures = [int(a) for a in wanted.split(",")] if wanted else None
    jobs = list(plan_jobs(arguments.only, architectures, arguments.fast, outcomes))
    known = read_cache(cache)
    outcomes += compile_jobs(jobs, arguments.processes, known)
    whole = not (arguments.only or architectures or arguments.fast)
    # Outcomes of other Triton versions stay.
    kept = {key: o for key, o in known.items() if not whole or f" {triton.__version__} " not in key}
    write_cache(cache, [*(Outcome(**o) for o in kept.values()), *outcomes])
    print_table(outcomes)
    fresh = sum(1 for o in outcomes if o.key and o.key not in known)
    failed = sum(1 for o in outcomes if o.complaint())
    print(f"{len(outcomes)} compilations, {fresh} fresh, {failed} failed")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "kernels")]
    sys.exit(main())
