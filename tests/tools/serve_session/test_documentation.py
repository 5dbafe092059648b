"""docs/serving.md and deploy/ say what the server takes, no more and no less."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from ninfer_runtime.server.anthropic.body import AnthropicBody
from ninfer_runtime.server.bodies.chat import ChatBody, TemplateFields
from ninfer_runtime.server.bodies.completions import CompletionBody
from ninfer_runtime.server.responses.body import ResponseBody
from ninfer_tools.serve_session.config_file import read_config
from ninfer_tools.serve_session.options import ServeOptions, is_flag, name_fields, option_name
from ninfer_tools.serve_session.value_checks import check_values

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "serving.md").read_text()
DEPLOY = ROOT / "deploy"
_ROW = re.compile(r"^\| (`--.*?) \| (.*?) \| .+ \|$", re.MULTILINE)
# Of the command itself, beside the table of options.
_OWN = {"served-config"}


def test_the_guide_has_every_option_with_its_default():
    rows = dict(_ROW.findall(GUIDE.replace("\\|", "¦")))
    found = {name: default for names, default in rows.items() for name in names_in(names)}
    assert set(found) == set(name_fields()) | _OWN
    for item in fields(ServeOptions):
        name = option_name(item.name)
        assert found[name] == describe_default(item), name
        if item.metadata["metavar"]:
            metavar = item.metadata["metavar"].replace("|", "¦")
            assert any(f"--{name}`" in names and names.endswith(f"` {metavar}") for names in rows)


def names_in(cell: str) -> list[str]:
    return re.findall(r"`--([a-z0-9-]+)`", cell)


def describe_default(item) -> str:
    default = item.default
    if default is None or default in ((), ""):
        return item.metadata["unset"] or "none"
    if is_flag(item.type):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize(
    "body", [ChatBody, TemplateFields, CompletionBody, ResponseBody, AnthropicBody]
)
def test_the_guide_has_every_field(body):
    names = {item.alias or name for name, item in body.model_fields.items()}
    missing = {name for name in names if f"`{name}`" not in GUIDE}
    assert not missing


def test_the_guide_s_examples_are_whole():
    """Blocks of JSON, TOML and Python can be read."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
    readers = {"json": json.loads, "toml": tomllib.loads,
               "python": lambda text: compile(text, "guide", "exec")}  # fmt: skip
    assert {kind for kind, _ in blocks} == {*readers, "sh"}
    for kind, text in blocks:
        readers.get(kind, shlex.split)(text)


def test_the_service_reads_a_file_of_options_that_is_right():
    found = read_config(DEPLOY / "served.toml")
    found.pop("file")
    problems = []
    check_values(ServeOptions(**found), problems_of(problems))
    assert not problems
    unit = (DEPLOY / "ninfer.service").read_text()
    seconds = int(re.search(r"TimeoutStopSec=(\d+)", unit)[1])  # type: ignore[index]
    assert found["drain_seconds"] < seconds
    assert "--served-config /etc/ninfer/served.toml" in unit


def problems_of(found: list):
    from ninfer_tools.serve_session.problems import ProblemList

    class Noted(ProblemList):
        def add(self, problem):
            found.append(problem)

    return Noted()


def test_case_86_the_health_check_asks_the_port_that_is_served():
    """Case 86. One variable names it, and nothing else does."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert text.count("ENV NINFER_PORT=8080") == 1
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert '--port "$NINFER_PORT"' in entry[2] and entry[2].startswith("exec ")
    check = text.partition("HEALTHCHECK")[2].partition("\n\n")[0]
    assert "os.environ['NINFER_PORT'] + '/health'" in check and "8080" not in check


def test_case_82_the_image_has_what_triton_compiles_with():
    """Case 82."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert text.splitlines().count("FROM python:3.12-slim") == 1
    assert re.search(r"apt-get install .*gcc libc6-dev", text)
    assert "Python.h" in text
