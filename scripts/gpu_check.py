#!/usr/bin/env python3
"""Check every operation of `ninfer_kernels` on this machine's GPU against its exact result.

Runs the CASES of all `ninfer_kernels.*.cases` modules: fresh random inputs at the shapes of real
models and at odd sizes, outputs poisoned before each run, reference and Triton kernel each held to
the bounds of specs/numerics.md. Prints one table with a line per operation and every failure, and
writes all results as JSON.

    python scripts/gpu_check.py [--only OP] [--small] [--limit SECONDS] [--out FILE]

Exit code 1 when an error exceeds its bound, a case fails to run, or time ran out before the last.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Result:
    """One case of one operation: error as a share of what is allowed, or why there is none."""

    operation: str
    case: str
    backend: str
    share: float
    seconds: float
    trouble: str = ""

    @property
    def passed(self) -> bool:
        return not self.trouble and self.share <= 1


def case_modules(only: str | None) -> dict[str, Any]:
    """Return operation -> its cases module; raises SystemExit for an unknown operation."""
    import ninfer_kernels

    found = {
        module.name.split(".")[1]: module.name
        for module in pkgutil.walk_packages(ninfer_kernels.__path__, "ninfer_kernels.")
        if module.name.endswith(".cases")
    }
    if only and only not in found:
        raise SystemExit(f"unknown operation: got {only}, want one of {', '.join(found)}")
    names = {only: found[only]} if only else found
    return {operation: importlib.import_module(name) for operation, name in names.items()}


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


def run_all(modules: dict[str, Any], arguments: argparse.Namespace) -> Iterator[Result]:
    """Yield results until the cases or the time end."""
    end = time.monotonic() + arguments.limit
    for operation, module in modules.items():
        for case in module.CASES:
            if arguments.small and not case.small:
                continue
            for backend in arguments.backends.split(","):
                if time.monotonic() > end:
                    trouble = "not run: out of time"
                    yield Result(operation, case.name, backend, float("inf"), 0.0, trouble)
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
        worst = max(result.share for result in group)
        seconds = sum(result.seconds for result in group)
        figures = f"{len(group):>13}{failed:>13}{worst:>13.3g}{seconds:>13.1f}"
        print(f"{operation:<20}{backend:<12}{figures}")
    for result in results:
        if not result.passed:
            why = result.trouble or f"error is {result.share:.3g} times its bound"
            print(f"FAILED {result.operation} {result.backend} {result.case}: {why}")


def describe_machine(device: str) -> dict[str, str]:
    """Return GPU and library versions, which every figure carries."""
    import torch
    import triton

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"device": name, "torch": torch.__version__, "triton": triton.__version__}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="OP", help="cases of one operation")
    parser.add_argument("--small", action="store_true", help="only the small, odd shapes")
    parser.add_argument("--limit", type=float, default=540.0, metavar="SECONDS")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all results as JSON")
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
    results = []
    for result in run_all(case_modules(arguments.only), arguments):
        results.append(result)
        if not result.passed:
            print(f"{result.operation} {result.backend} {result.case}: failed", flush=True)
    print_table(results)
    if arguments.out:
        record = {**machine, "results": [asdict(result) for result in results]}
        arguments.out.write_text(json.dumps(record, indent=1))
    return 0 if results and all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "kernels")]
    sys.exit(main())
