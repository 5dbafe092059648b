"""No kernel is left out: every jit function is run by a small case and compiled ahead of time."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2] / "kernels"
SOURCES = sorted((ROOT / "ninfer_kernels").rglob("*.py"))
OPERATIONS = sorted(path.parent.name for path in (ROOT / "ninfer_kernels").glob("*/op.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("triton.jit")


def jit_functions() -> dict[str, set[str]]:
    """Return every jit function and the names it calls; names are unique in the package."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(map(is_jit, node.decorator_list)):
                # Operations may have private pieces of one name; both count as one.
                calls = {
                    call.func.id
                    for call in ast.walk(node)
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                }
                found.setdefault(node.name, set()).update(calls)
    return found


FUNCTIONS = jit_functions()


def reach(entries: Iterable[str]) -> set[str]:
    """Return the jit functions that `entries` run, themselves included."""
    reached, waiting = set(), [name for name in entries if name in FUNCTIONS]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += FUNCTIONS[name] & FUNCTIONS.keys()
    return reached


def kernel_modules(operation: str) -> list[ModuleType]:
    folder = ROOT / "ninfer_kernels" / operation
    return [
        importlib.import_module(module_name(path)) for path in sorted(folder.glob("kernel*.py"))
    ]


def entries_of(operation: str) -> dict[str, object]:
    """Return the kernels of one operation that a launch may name."""
    return {
        compilation.kernel.__name__: compilation.kernel
        for module in kernel_modules(operation)
        for compilation in module.COMPILATIONS
    }


def test_every_jit_function_is_compiled_ahead_of_time():
    entries = {name for operation in OPERATIONS for name in entries_of(operation)}
    assert len(FUNCTIONS) > 40
    assert sorted(FUNCTIONS.keys() - reach(entries)) == []


def test_every_operation_has_its_four_files():
    for operation in OPERATIONS:
        names = {path.stem for path in (ROOT / "ninfer_kernels" / operation).glob("*.py")}
        assert {"op", "kernel", "reference", "cases"} <= names, operation


@pytest.mark.parametrize("operation", OPERATIONS)
def test_small_cases_run_every_kernel(operation: str, device: str, monkeypatch):
    """Small cases, one after the other, until each kernel of the operation ran."""
    entries, ran = entries_of(operation), set()
    kind = type(next(iter(entries.values())))
    run = kind.run

    def record(self, *arguments, **options):
        ran.add(self.__name__)
        return run(self, *arguments, **options)

    monkeypatch.setattr(kind, "run", record)
    cases = importlib.import_module(f"ninfer_kernels.{operation}.cases")
    for case in cases.CASES:
        before = set(ran)
        if case.small and entries.keys() - ran:
            assert cases.worst_error(case, device, 3, "triton") <= 1
        assert before <= ran
    assert sorted(entries.keys() - ran) == []
