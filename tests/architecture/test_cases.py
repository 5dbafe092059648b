"""`tests/CASES.md` names every public report once, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "CASES.md"
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`\s]+\.py)::(\w+)`")
COVERED = {
    1, 3, 4, 6, 7, 8, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27, 30, 31, 32, 33, 35,
    36, 37, 38, 40, 41, 43, 46, 47, 50, 51, 54, 55, 56, 58, 60, 61, 63, 64, 65, 66, 68, 70, 71,
    72, 73, 74, 76, 77, 78, 80, 81, 82, 86, 87, 88,
}  # fmt: skip


def rows() -> dict[int, str]:
    found = ROW.findall(TABLE.read_text())
    assert len(found) == len({number for number, _ in found}), "a case stands twice"
    return {int(number): cell for number, cell in found}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def case_numbers(name: str) -> set[int]:
    """`test_case_01_and_47_foreign_file` is of the cases 1 and 47."""
    head = re.match(r"test_case_(\d+(?:_and_\d+)*)_", name)
    return {int(number) for number in head[1].split("_and_")} if head else set()


def test_every_test_of_the_table_exists():
    named = TEST.findall(TABLE.read_text())
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]
    assert not missing


def test_every_case_test_stands_in_the_row_of_its_number():
    table = rows()
    for path in sorted((ROOT / "tests" / "cases").glob("test_*.py")):
        for name in sorted(n for n in functions(path) if n.startswith("test_")):
            numbers = case_numbers(name)
            assert numbers, f"{name} names no case"
            for number in numbers:
                assert f"{path.relative_to(ROOT)}::{name}`" in table[number]


def test_every_row_has_a_test_or_a_reason():
    for number, cell in rows().items():
        tests = TEST.findall(cell)
        assert bool(tests) == (number in COVERED), number
        assert tests or len(cell.split()) >= 4, f"case {number} has neither"
        own = [name for path, name in tests if number in case_numbers(name)]
        assert bool(own) == bool(tests), f"case {number} has no test of its own number"
