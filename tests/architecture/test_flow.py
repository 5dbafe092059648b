"""specs/flow.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOW = (ROOT / "specs/flow.md").read_text()


def test_every_path_of_the_flow_exists():
    paths = re.findall(r"`([\w./]*/[\w./]+)`", FLOW)
    assert len(paths) >= 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_stops_are_numbered_without_a_gap():
    numbers = [int(number) for number in re.findall(r"^(\d)\. \*\*", FLOW, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 6
