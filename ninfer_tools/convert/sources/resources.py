"""The frontend files of a checkpoint (rules S-30 to S-32)."""

from __future__ import annotations

from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_tools.convert.sources.files import CheckpointFiles
from ninfer_tools.convert.sources.json_text import read_json_object

# Role -> the component that needs it.
ROLES = {role: component for _, role, component in FRONTEND_RESOURCES}
TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
OLD_TEMPLATE = "chat_template.json"
MAX_BYTES = 100_000_000


def read_resources(
    files: CheckpointFiles,
) -> tuple[dict[str, bytes], list[str], list[NinferError]]:
    """Return role -> bytes of what the checkpoint has, in file order, notices and problems.

    Without `chat_template.jinja` the template is that of `chat_template.json` or of
    tokenizer_config.json, as UTF-8. A file that cannot be read, or is too large to be what its name
    says, is a problem.
    """
    found, notices, problems = {}, [], []
    for role in ROLES:
        if role in files.names():
            try:
                found[role] = _read(files, role)
            except NinferError as error:
                problems.append(error)
        elif role == TEMPLATE:
            origin, text = _embedded_template(files)
            if text is not None:
                found[role] = text.encode("utf-8", "surrogatepass")
                notices.append(f"the chat template is the one inside {origin}")
    return found, notices, problems


def _read(files: CheckpointFiles, name: str) -> bytes:
    size = files.size(name)
    if size > MAX_BYTES:
        raise NinferError("file is too large", path=files.path(name), got=size, want=MAX_BYTES)
    return files.read(name, 0, size)


def _embedded_template(files: CheckpointFiles) -> tuple[str, str | None]:
    for origin in (OLD_TEMPLATE, TOKENIZER_CONFIG):
        if origin not in files.names():
            continue
        try:
            config = read_json_object(_read(files, origin), origin, files.path(origin))
        except NinferError:
            # A broken file is reported where its contents are checked.
            continue
        text = _default_template(config.get("chat_template"))
        if text is not None:
            return origin, text
    return "", None


def _default_template(field: Any) -> str | None:
    """Return the template of a field that holds one text, or a list of named ones."""
    if isinstance(field, list):
        named = {item.get("name"): item.get("template") for item in field if type(item) is dict}
        field = named.get("default")
    return field if isinstance(field, str) and field else None
