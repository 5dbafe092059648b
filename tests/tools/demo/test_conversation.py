"""Laws of the training text: it is what the shipped chat template makes of a conversation."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer_tools.demo.manifest import PACKED, read_manifest
from ninfer_tools.demo.packing import unpack

SCRIPTS = Path(__file__).parents[3] / "scripts/demo"


@pytest.fixture
def template():
    (file,) = [f for f in read_manifest().files if f.name == "checkpoint/chat_template.jinja"]
    content = unpack(PACKED / f"{file.name}.zst", file.packed_sha256, file.sha256)
    assert content == (SCRIPTS / "chat_template.jinja").read_bytes()
    # As transformers sets up the environment of chat templates.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(content.decode())


def test_rendered_pieces_join_to_the_templates_text(template, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import chat_tasks
    import conversation

    tasks = chat_tasks.ChatTasks(random.Random(3), ["x = 1", "    return a"])
    seen = set()
    for _ in range(500):
        sample = tasks.sample(200)
        seen.add((sample.task, sample.think))
        pieces = conversation.render(sample.full, sample.tools)
        whole = "".join(text for text, _ in pieces)
        assert template.render(messages=sample.full, tools=sample.tools) == whole
        prompt = template.render(
            messages=sample.messages,
            tools=sample.tools,
            add_generation_prompt=True,
            enable_thinking=sample.think,
        )
        assert whole.startswith(prompt)
        # What follows the prompt is the target, and nothing before it in the last turn is.
        assert whole.removeprefix(prompt) == pieces[-2][0] + "\n"
        assert [target for _, target in pieces[-3:]] == [0, 1, 0]
    assert len(seen) == 20
