"""The markup of tool calls in generated text: finding its tags in any portions."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN_CALL, CLOSE_CALL = "open_call", "close_call"
OPEN_FUNCTION, CLOSE_FUNCTION = "open_function", "close_function"
OPEN_PARAMETER, CLOSE_PARAMETER = "open_parameter", "close_parameter"
# `<function ...>` and `<parameter ...>` as other documents have them: they name nothing here.
FUNCTION_ELEMENT, PARAMETER_ELEMENT = "function_element", "parameter_element"
# `<function=` and `<parameter=` without a name behind them.
STUB, CLOSE_THINK = "stub", "close_think"
# The beginning of a tag at the end of the text.
BROKEN = "broken"

_LITERALS = {
    "<tool_call>": OPEN_CALL,
    "</tool_call>": CLOSE_CALL,
    "<function_calls>": OPEN_CALL,
    "</function_calls>": CLOSE_CALL,
    "</function>": CLOSE_FUNCTION,
    "</invoke>": CLOSE_FUNCTION,
    "</parameter>": CLOSE_PARAMETER,
    "</param>": CLOSE_PARAMETER,
    "</think>": CLOSE_THINK,
}
_LONGEST = 200  # characters of a name, or of the attributes of an element
_TAG = re.compile(
    rf"(?P<literal>{'|'.join(_LITERALS)})"
    rf"|<function=(?P<function>[^<>\n]{{0,{_LONGEST}}})(?:>|(?=\n))"
    rf"|<(?:parameter|param)=(?P<parameter>[^<>\n]{{0,{_LONGEST}}})(?:>|(?=\n))"
    rf"|<(?:function|invoke)(?P<function_element>(?:\s[^<>]{{0,{_LONGEST}}})?)>"
    rf"|<(?:parameter|param)(?P<parameter_element>(?:\s[^<>]{{0,{_LONGEST}}})?)>"
    r"|(?P<stub><(?:function|parameter|param)=)"
)
_NAME = re.compile(r"""\sname\s*=\s*["']?([^"'<>]+)["']?""")
_WORDS = ("<function", "<invoke", "<parameter", "<param")
_OPEN_ENDED = re.compile(
    rf"<(?:(?:function|parameter|param)=[^<>\n]{{0,{_LONGEST}}}"
    rf"|(?:function|invoke|parameter|param)\s[^<>]{{0,{_LONGEST}}})"
)
_BEGUN = re.compile(r"<(?:too|fun|par|inv)\S*\Z|</(?:to|fu|pa|in)")
_MOST_HELD = _LONGEST + 12


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag. `raw` is its spelling; `plain` that it names with `=` as the model was taught."""

    kind: str
    raw: str
    name: str = ""
    plain: bool = True


class TagScanner:
    """Turns text into stretches of text and tags. The sequence does not depend on the portions,
    but for where a stretch is divided; what is held is never longer than one tag."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> list[str | Tag]:
        text, self._held = self._held + text, ""
        start = text.rfind("<")
        if start < 0:
            return [text] if text else []
        if _may_grow(text, start):
            text, self._held = text[:start], text[start:]
        return split_tags(text)

    def finish(self) -> list[str | Tag]:
        """Return what was held: no more text comes. The beginning of a tag is one too."""
        held, self._held = self._held, ""
        return [Tag(BROKEN, held)] if _BEGUN.match(held) else split_tags(held)


def _may_grow(text: str, start: int) -> bool:
    """Whether more text could make a tag of the end of `text`, which has its last `<` at start."""
    if len(text) - start > _MOST_HELD:
        return False
    tail = text[start:]
    if any(known.startswith(tail) and known != tail for known in (*_LITERALS, *_WORDS)):
        return True
    return tail in _WORDS or _OPEN_ENDED.fullmatch(tail) is not None


def split_tags(text: str) -> list[str | Tag]:
    """Return the stretches and tags of a whole text."""
    events: list[str | Tag] = []
    begin = 0
    for found in _TAG.finditer(text):
        if found.start() > begin:
            events.append(text[begin : found.start()])
        events.append(_read_tag(found))
        begin = found.end()
    if begin < len(text):
        events.append(text[begin:])
    return events


def _read_tag(found: re.Match[str]) -> Tag:
    raw, group = found[0], found.lastgroup
    if group == "literal":
        return Tag(_LITERALS[raw], raw)
    if group in ("function", "parameter"):
        name = found[group].strip().strip("\"'").strip()
        kind = OPEN_FUNCTION if group == "function" else OPEN_PARAMETER
        return Tag(kind, raw, name) if name else Tag(STUB, raw)
    if group == "stub":
        return Tag(STUB, raw)
    named = _NAME.search(found[group or 0])
    name = named[1].strip() if named else ""
    if not name:
        return Tag(str(group), raw)
    kind = OPEN_FUNCTION if group == FUNCTION_ELEMENT else OPEN_PARAMETER
    return Tag(kind, raw, name, plain=False)
