"""What is odd about ids and templates, and forbids no conversion (rule S-87)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_formats.errors import printable
from ninfer_tools.convert.sources.resources import TEMPLATE

_GENERATION = "generation_config.json"
_IDS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)
# Larger templates are not looked at: real ones have some kilobytes.
_MAX_TEMPLATE_BYTES = 1 << 20
_MAX_IDS = 16
# A tag that transformers adds to the language.
_GENERATION_TAG = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")


def list_odd_frontend(
    config: Mapping[str, Any], resources: Mapping[str, bytes], rows: int
) -> Iterator[str]:
    """Yield a notice per token id beyond the `rows` of the embedding, and one for a template
    that does not compile (where Jinja is installed)."""
    places = {"config.json": config, "config.json.text_config": config.get("text_config")}
    places[_GENERATION] = _read_object(resources.get(_GENERATION, b""))
    for place, values in places.items():
        if isinstance(values, Mapping):
            for key in _IDS:
                for number in _list_ids(values.get(key)):
                    if not 0 <= number < rows:
                        yield (
                            f"{place} says {key} {printable(number, 40)}, but token ids are "
                            f"0 to {rows - 1}"
                        )
    fault = _find_template_fault(resources.get(TEMPLATE, b""))
    if fault is not None:
        yield f"{TEMPLATE} does not compile: {fault}"


def _read_object(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None  # it has a problem already


def _list_ids(value: Any) -> list[int]:
    found = value if isinstance(value, list) else [value]
    return [n for n in found if type(n) is int][:_MAX_IDS]


def _find_template_fault(raw: bytes) -> str | None:
    try:
        from jinja2 import Environment, TemplateError
    except ImportError:
        return None
    if len(raw) > _MAX_TEMPLATE_BYTES:
        return None
    text = _GENERATION_TAG.sub("", raw.decode("utf-8", "replace"))
    try:
        # Parsing runs nothing of the template.
        Environment(extensions=["jinja2.ext.loopcontrols"]).parse(text)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f"line {line}: "
        return where + printable(error.message or type(error).__name__, 200)
    except RecursionError:
        return "it is nested too deeply"
    return None
