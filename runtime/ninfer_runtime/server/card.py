"""What is known of the served model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import jinja2
from jinja2 import meta, nodes

from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.frontend import Frontend
from ninfer_runtime.frontend.template import ChatTemplate, TemplateOptions
from ninfer_runtime.frontend.template_environment import TemplateEnvironment
from ninfer_runtime.server.engine_process.messages import Ready
from ninfer_runtime.server.thinking import EFFORTS, NONE

# What every rendering sets itself.
_QUESTIONS = ("defined", "undefined", "default", "d")
_OWN_NAMES = frozenset({"messages", "tools", "add_generation_prompt"})


@dataclass(frozen=True)
class ModelCard:
    """`id` is the public name, `created` in seconds since 1970; `vocabulary` counts ids that have
    logits, `parameters` stored values, `bytes` the artifact. `efforts` are those the template
    tells apart, `template_names` the variables it reads; `engine` is what the engine runs with."""

    id: str
    created: int
    max_context: int
    vocabulary: int
    lanes: int
    vision: bool
    architecture: str
    parameters: int
    bytes: int
    efforts: Sequence[str]
    template_names: frozenset[str]
    engine: Ready


def make_card(
    artifact: Artifact, frontend: Frontend, vocabulary: int, ready: Ready, name: str | None
) -> ModelCard:
    """Return the card; `name` is what the server was told to call the model."""
    text = artifact.components["text"].config
    return ModelCard(
        id=name or choose_name(artifact),
        created=_read_time(artifact.path),
        max_context=ready.max_context,
        vocabulary=vocabulary,
        lanes=ready.lanes,
        vision=ready.vision,
        architecture=str(text.get("model_type", "qwen3_5")),
        parameters=sum(prod(tensor.shape) for tensor in artifact.tensors()),
        bytes=artifact.file_bytes,
        efforts=list_efforts(frontend.template),
        template_names=list_variables(frontend.template.source),
        engine=ready,
    )


def choose_name(artifact: Artifact) -> str:
    """Return the name an artifact gives itself, else that of its file."""
    name = artifact.metadata.get("name")
    return name if isinstance(name, str) and name.strip() else artifact.path.stem


def list_efforts(template: ChatTemplate) -> tuple[str, ...]:
    """Return the efforts a template accepts; none if they make no difference to it."""
    if "reasoning_effort" not in template.source:
        return ()
    rendered = {effort: _try_effort(template, effort) for effort in EFFORTS if effort != NONE}
    known = {effort: text for effort, text in rendered.items() if text is not None}
    return tuple(known) if len(set(known.values())) > 1 else ()


def list_variables(source: str) -> frozenset[str]:
    """Return the names a template takes from its caller: those it reads and does not set itself,
    and those it asks whether they are set."""
    environment = TemplateEnvironment()
    try:
        tree = environment.parse(source)
    except jinja2.TemplateError:
        return frozenset()
    read = meta.find_undeclared_variables(tree)
    names = list(tree.find_all(nodes.Name))
    parameters = {name.name for name in names if name.ctx == "param"}
    own = {name.name for name in names if name.ctx == "store"} | parameters
    asked = {
        test.node.name
        for test in tree.find_all((nodes.Test, nodes.Filter))
        if test.name in _QUESTIONS and isinstance(test.node, nodes.Name)
    }
    taken = (read - own) | (read & asked) - parameters
    return frozenset(taken - _OWN_NAMES - set(environment.globals))


def _try_effort(template: ChatTemplate, effort: str) -> str | None:
    options = TemplateOptions(enable_thinking=True, reasoning_effort=effort)
    try:
        return template.render([{"role": "user", "content": "a"}], options=options)
    except RequestError:
        return None


def _read_time(path: Path) -> int:
    try:
        return int(path.stat().st_mtime)
    except OSError:  # an artifact that is made up has no file
        return 0
