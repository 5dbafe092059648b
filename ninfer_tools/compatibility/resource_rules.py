"""Frontend files: which are not the official ones, and which cannot be frontend files at all."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from hashlib import sha256

import numpy as np

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.published import pinned_resources
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import Finding, notice

_TEMPLATE = "chat_template.jinja"
# The tokenizer is over ten megabytes of JSON: only its ends are looked at.
_PARSE_LIMIT = 1 << 20
_ENDS = 64


def check_frontend(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Note frontend files of a version 1 or 2 file that are not the official ones."""
    bad = unusable_roles(artifact)
    yield from _note_unusable(bad)
    if artifact.identity is not None:
        yield from note_unofficial(artifact, artifact.identity.model_id, bad)


def note_unofficial(
    artifact: Artifact, model_id: str, skip: Collection[str] = ()
) -> Iterator[Finding]:
    """Note frontend files that differ from those the version 2 converters of a model pinned."""
    pins = pinned_resources(model_id)
    if not pins:
        return
    stored = [role for _, role in artifact.resources]
    differing = [
        role
        for role in stored
        if role not in skip and pins.get(role) not in (None, _digest(artifact, role))
    ]
    if _TEMPLATE in differing:
        yield notice(
            "the chat template is not the official one; converters of version 2 insisted on it, "
            "the engine does not"
        )
    others = [role for role in differing if role != _TEMPLATE]
    if others:
        yield notice(f"not the official files of this model: {', '.join(others)}")


def check_contents(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Note frontend files that hold no text or no JSON object; the payload itself is not judged."""
    yield from _note_unusable(unusable_roles(artifact))


def unusable_roles(artifact: Artifact) -> list[str]:
    """Return the roles whose bytes cannot be a file of that name."""
    return [
        role
        for component, role in artifact.resources
        if not _is_plausible(role, _view(artifact, component, role))
    ]


def _note_unusable(roles: list[str]) -> Iterator[Finding]:
    if roles:
        yield notice(
            f"frontend files hold no usable text: {', '.join(roles)}; "
            f"`ninfer inspect --verify` reads the whole payload"
        )


def _digest(artifact: Artifact, role: str) -> str:
    component = next(name for name, found in artifact.resources if found == role)
    data = _view(artifact, component, role)
    return "" if data is None else sha256(data.data).hexdigest()


def _view(artifact: Artifact, component: str, role: str) -> np.ndarray | None:
    try:
        return artifact.payload_of(artifact.resources[component, role].id)
    except NinferError:
        return None  # reported with its part or its encoding


def _is_plausible(role: str, data: np.ndarray | None) -> bool:
    if data is None:
        return True
    if role.endswith(".json"):
        return _is_object(data)
    try:
        return "\0" not in data.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        return False


def _is_object(data: np.ndarray) -> bool:
    """Return whether the bytes are a JSON object, in a large file whether they look like one."""
    if data.size > _PARSE_LIMIT:
        first, last = data[:_ENDS].tobytes().strip(), data[-_ENDS:].tobytes().strip()
        return first.startswith(b"{") and last.endswith(b"}")
    try:
        return isinstance(json.loads(data.tobytes().decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False
