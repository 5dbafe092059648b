"""README and docs name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from ninfer_tools.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)]*))?\)")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    targets = [target for target, _ in LINK.findall(path.read_text()) if ":" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_script_that_is_named_exists(path):
    named = set(re.findall(r"\bscripts/[\w/.]*\w", path.read_text()))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_lists_every_document_and_every_specification():
    named = {target for target, _ in LINK.findall(README)}
    there = [*(ROOT / "docs").glob("*.md"), *(ROOT / "specs").glob("*.md")]
    assert {str(path.relative_to(ROOT)) for path in there} <= named


def test_the_readme_lists_every_command():
    known = set(typer.main.get_command(app).commands)  # pyright: ignore
    assert set(re.findall(r"^\| `ninfer (\w+)", README, re.MULTILINE)) == known


def test_the_extras_that_the_readme_names_exist():
    build = (ROOT / "pyproject.toml").read_text()
    rows = re.findall(r"^\| `ninfer .*\| ([^|]*) \|$", README, re.MULTILINE)
    for extra in {name.strip() for row in rows for name in row.split(",")} - {""}:
        assert re.search(rf"^{extra} = \[", build, re.MULTILINE), extra


def test_the_picture_of_the_page_is_small():
    assert 10_000 < (ROOT / "docs/chat-page.png").stat().st_size < 300_000
