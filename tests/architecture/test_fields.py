"""The table of fields without effect is the same in code and specification (HT-5)."""

from __future__ import annotations

import re
from pathlib import Path

from ninfer_runtime.server.fields import NO_OPS

HTTP = Path(__file__).parents[2] / "specs" / "http.md"


def test_fields_without_effect_are_those_of_the_specification():
    _, _, section = HTTP.read_text().partition("## 6. Fields without effect")
    section = section.partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", section, re.MULTILINE)
    stated = {name: set(re.findall(r"`(\w+)`", fields)) for name, fields in rows}
    assert stated == {name: set(fields) for name, fields in NO_OPS.items()}
