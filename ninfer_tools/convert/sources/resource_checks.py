"""Frontend files against the model that they come with (rules S-32 and S-36)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import ModelGeometry, VisionGeometry
from ninfer_tools.convert.sources.json_text import read_json_object, refuse_foreign
from ninfer_tools.convert.sources.resources import ROLES, TEMPLATE
from ninfer_tools.convert.sources.token_table import CONFIG, TOKENIZER

# Key of a preprocessor file -> the size of the vision tower it must equal.
_PATCH_KEYS = {
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
}


def find_bad_resources(
    resources: Mapping[str, bytes],
    paths: Mapping[str, str],
    geometry: ModelGeometry,
    components: Collection[str],
    faulty: Collection[str] = (),
) -> list[NinferError]:
    """Return what is missing, unreadable or contradictory among the files components need.

    `paths` says what messages call the file of a role; those in `faulty` have a problem already.
    The tokenizer files are read by `read_token_table`.
    """
    needed = [role for role, component in ROLES.items() if component in components]
    problems = [
        NinferError("file is missing", path=paths[role], remedy=f"add --resource {role}=<file>")
        for role in needed
        if role not in resources and paths[role] not in faulty
    ]
    for role in needed:
        if role in resources and role not in (TOKENIZER, CONFIG):
            problems += _check(role, resources[role], paths[role], geometry.vision)
    return problems


def _check(
    role: str, raw: bytes, path: str, vision: VisionGeometry | None
) -> Iterator[NinferError]:
    try:
        if not role.endswith(".json"):
            _check_text(raw, path)
            return
        content = read_json_object(raw, role, path)
    except NinferError as error:
        yield error
        return
    if not role.endswith("preprocessor_config.json") or vision is None:
        return
    for key, size in _PATCH_KEYS.items():
        want = getattr(vision, size)
        got = content.get(key)
        # In a text or true and false a number is none, although it may look like one.
        is_number = isinstance(got, int | float) and not isinstance(got, bool)
        if got is not None and not (is_number and got == want):
            what = "preprocessing does not fit the vision tower"
            shown = got if is_number else json.dumps(got)
            yield NinferError(what, path=path, where=key, got=shown, want=want)


def _check_text(raw: bytes, path: str) -> None:
    refuse_foreign(raw, path)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NinferError("file is not UTF-8", path=path, where=f"byte {error.start}") from None
    if not text.strip() or "\0" in text:
        raise NinferError("file holds no usable text", path=path)
    if text.startswith("\ufeff"):
        raise NinferError(
            "file begins with a byte order mark, which every prompt would begin with", path=path,
            remedy=f"remove the mark (the first 3 bytes), or --resource {TEMPLATE}=FILE",
        )  # fmt: skip
