#!/usr/bin/env python3
"""Check on this machine's GPU what can only be checked there: every operation, and the engine.

Operations: the CASES of all `ninfer_kernels.*.cases` modules, fresh random inputs at the shapes of
real models and at odd sizes, outputs poisoned before each run, reference and Triton kernel each
held to the bounds of specs/numerics.md. The engine (`gpu_engine`): the demo checkpoint and small
random models against the engine on the processor, rounds captured and shared in every way, memory
planned and taken. Prints one table with a line per operation and part and every failure; --verbose
adds what every row of the engine found, --json writes all of it.

    python scripts/gpu_check.py [--only NAME,...] [--seed N] [--limit SECONDS] [--json FILE]

NAME is an operation, `operations`, `engine`, or `engine:PART`. Exit code 1 when an error exceeds
its bound, something fails to run, or time ran out before the last.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import pkgutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Result:
    """One case of one operation: error as a share of what is allowed, or why there is none. What
    never ran has a share that is not a number, and did not pass."""

    operation: str
    case: str
    backend: str
    share: float
    seconds: float
    trouble: str = ""
    detail: str = ""

    @property
    def passed(self) -> bool:
        return not self.trouble and self.share <= 1


def find_cases() -> dict[str, str]:
    """Return operation -> the name of its cases module."""
    import ninfer_kernels

    return {
        module.name.split(".")[1]: module.name
        for module in pkgutil.walk_packages(ninfer_kernels.__path__, "ninfer_kernels.")
        if module.name.endswith(".cases")
    }


def choose(only: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return operation -> its cases module, and parts of the engine; SystemExit for a name that is
    neither."""
    from gpu_engine.parts import PARTS

    cases = find_cases()
    everything = [*cases, *(f"engine:{part}" for part in PARTS)]
    chosen: list[str] = []
    for name in only.split(",") if only else ["operations", "engine"]:
        groups = {"operations": [*cases], "engine": everything[len(cases) :]}
        found = groups.get(name, [name])
        if not set(found) <= set(everything):
            want = ", ".join(["operations", "engine", *everything])
            raise SystemExit(f"unknown name: got {name}, want some of {want}")
        chosen += found
    modules = {name: importlib.import_module(cases[name]) for name in chosen if name in cases}
    return modules, [name.partition(":")[2] for name in chosen if name not in cases]


def run_case(
    operation: str, module: Any, case: Any, backend: str, device: str, seed: int
) -> Result:
    """Run one case with one backend; whatever goes wrong becomes part of the result."""
    import torch

    began = time.perf_counter()
    share, trouble = float("inf"), ""
    try:
        share = float(module.worst_error(case, device, seed, backend))
    except Exception as error:  # One broken case must not hide the others.
        last = (str(error).strip().splitlines() or [""])[-1]
        trouble = f"{type(error).__name__}: {last}"[:300]
    if device == "cuda":
        # An error of an earlier kernel shows only here; it is this case's.
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            raise SystemExit(f"{operation} {case.name} {backend}: device lost, {error}") from error
    return Result(operation, case.name, backend, share, time.perf_counter() - began, trouble)


def run_engine(parts: list[str], arguments: argparse.Namespace, end: float) -> Iterator[Result]:
    """Yield what the parts of the engine's check find, until the time ends."""
    if not parts:
        return
    from gpu_engine.bench import Bench
    from gpu_engine.models import Shelf
    from gpu_engine.parts import run_parts

    with tempfile.TemporaryDirectory() as temporary:
        shelf = Shelf(arguments.artifacts or Path(temporary))
        bench = Bench(shelf, arguments.device, arguments.seed)
        for found in run_parts(bench, parts, end - time.monotonic()):
            yield Result(
                f"engine:{found.part}", found.row.case, "engine", found.row.share,
                found.seconds, found.trouble, found.row.detail,
            )  # fmt: skip


def run_operations(
    modules: dict[str, Any], arguments: argparse.Namespace, end: float
) -> Iterator[Result]:
    """Yield results until the cases or the time end."""
    for operation, module in modules.items():
        for case in module.CASES:
            if arguments.small and not case.small:
                continue
            for backend in arguments.backends.split(","):
                if time.monotonic() > end:
                    trouble = "not run: out of time"
                    yield Result(operation, case.name, backend, float("nan"), 0.0, trouble)
                    continue
                yield run_case(operation, module, case, backend, arguments.device, arguments.seed)


def print_table(results: list[Result]) -> None:
    """Print a line per operation and backend, then every failure."""
    heads = ("cases", "failed", "error/bound", "seconds")
    print(f"{'operation':<20}{'backend':<12}" + "".join(f"{head:>13}" for head in heads))
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.operation, result.backend), []).append(result)
    for (operation, backend), group in groups.items():
        failed = sum(not result.passed for result in group)
        measured = [result.share for result in group if result.share == result.share]
        worst = max(measured, default=float("nan"))
        seconds = sum(result.seconds for result in group)
        figures = f"{len(group):>13}{failed:>13}{worst:>13.3g}{seconds:>13.1f}"
        print(f"{operation:<20}{backend:<12}{figures}")
    for result in results:
        if not result.passed:
            why = result.trouble or f"error is {result.share:.3g} times its bound"
            if result.detail:
                why += f"; {result.detail}"
            print(f"FAILED {result.operation} {result.backend} {result.case}: {why}")


def describe_machine(device: str) -> dict[str, str]:
    """Return GPU and library versions, which every figure carries."""
    import torch
    import triton

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"device": name, "torch": torch.__version__, "triton": triton.__version__}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME,...", help="some operations, parts of the engine")
    parser.add_argument(
        "--artifacts", type=Path, metavar="FOLDER", help="keep the engine's artifacts, or find them"
    )
    parser.add_argument("--verbose", action="store_true", help="every row of the engine")
    parser.add_argument("--small", action="store_true", help="only the small, odd shapes")
    parser.add_argument("--limit", type=float, default=540.0, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", default="reference,triton")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def main() -> int:
    import torch

    arguments = read_arguments()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: nothing was checked", file=sys.stderr)
        return 1
    # Rule N-10: partial sums of library products stay float32.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    machine = describe_machine(arguments.device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    torch.set_num_threads(min(4, torch.get_num_threads()))  # small tensors
    end = time.monotonic() + arguments.limit
    modules, parts = choose(arguments.only)
    results, written = [], time.monotonic()
    for result in chain(run_engine(parts, arguments, end), run_operations(modules, arguments, end)):
        results.append(result)
        if time.monotonic() - written > 5:  # whoever ends this early still has something
            write_record(arguments, machine, results)
            written = time.monotonic()
        if arguments.verbose and result.backend == "engine":
            found = result.trouble or f"{result.share:.3g} of the bound; {result.detail}"
            line = f"{result.operation} {result.case}: {found}"
            print(f"{line}; {result.seconds:.1f} s", flush=True)
        if not result.passed:
            print(f"{result.operation} {result.backend} {result.case}: failed", flush=True)
    print_table(results)
    write_record(arguments, machine, results)
    return 0 if results and all(result.passed for result in results) else 1


def describe_result(result: Result) -> dict[str, Any]:
    """Return a result as JSON has it: no share where it is not a finite number."""
    share = result.share if math.isfinite(result.share) else None
    return {**asdict(result), "share": share, "passed": result.passed}


def write_record(
    arguments: argparse.Namespace, machine: dict[str, str], results: list[Result]
) -> None:
    if arguments.json:
        rows = [describe_result(result) for result in results]
        record = {**machine, "seed": arguments.seed, "results": rows}
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sys.path[:0] = [
        str(ROOT / part) for part in ("kernels", "runtime", "formats", "tests", "scripts", "")
    ]
    sys.exit(main())
