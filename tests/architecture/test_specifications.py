"""Every numbered rule of the specifications is cited by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPECIFICATIONS = sorted((ROOT / "specs").glob("*.md"))
RULE = re.compile(r"\*\*([A-Z]+-\d+)\*\*")
RANGE = re.compile(r"\b([A-Z]+)-(\d+)(?:\s+to\s+(?:[A-Z]+-)?(\d+))?")


def cited_rules() -> set[str]:
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for prefix, first, last in RANGE.findall(path.read_text()):
            found |= {f"{prefix}-{n}" for n in range(int(first), int(last or first) + 1)}
    return found


@pytest.mark.parametrize("path", SPECIFICATIONS, ids=lambda path: path.stem)
def test_every_rule_is_cited_by_a_test(path):
    rules = RULE.findall(path.read_text())
    assert len(rules) == len(set(rules)), "a rule number stands twice"
    missing = sorted(set(rules) - cited_rules())
    assert not missing


def test_no_two_documents_number_rules_alike():
    """A test that cites one of them would count for both."""
    prefixes = [
        {rule.partition("-")[0] for rule in RULE.findall(path.read_text())}
        for path in SPECIFICATIONS
    ]
    several = [prefix for found in prefixes for prefix in found]
    assert len(several) == len(set(several)), sorted(several)


def test_the_normative_documents_are_there():
    names = {path.stem for path in SPECIFICATIONS}
    assert {"container", "numeric-formats", "layouts", "inventories", "migration"} <= names


def test_no_citation_names_a_rule_that_does_not_exist():
    known = {rule for path in SPECIFICATIONS for rule in RULE.findall(path.read_text())}
    prefixes = {rule.partition("-")[0] for rule in known}
    # Other capital-letter names with numbers (UTF-8, A16) are not rules.
    cited = {rule for rule in cited_rules() if rule.partition("-")[0] in prefixes}
    assert sorted(cited - known) == []
