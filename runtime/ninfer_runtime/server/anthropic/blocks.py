"""Blocks of content as the Messages API writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.field_error import FieldError, check_kind
from ninfer_runtime.server.bodies.model import Body

# Of each kind the fields it must have and those it may have.
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text": (("text",), ()),
    "image": (("source",), ()),
    "video": (("source",), ()),
    "thinking": (("thinking",), ("signature",)),
    "redacted_thinking": (("data",), ()),
    "tool_use": (("id", "name", "input"), ()),
    "tool_result": (("tool_use_id",), ("content", "is_error")),
}
_OWN = tuple(dict.fromkeys(name for both in _FIELDS.values() for group in both for name in group))
_UNSUPPORTED = ("document", "search_result", "container_upload")
_MEDIA = ("image", "video")
# Who may say what; results hold text and media.
USER_KINDS = ("text", *_MEDIA, "tool_result")
ASSISTANT_KINDS = ("text", *_MEDIA, "thinking", "redacted_thinking", "tool_use")
RESULT_KINDS = ("text", *_MEDIA)


class Source(Body):
    """A medium as base64 or at an address."""

    type: Literal["base64", "url"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("type") == "file":
            message = "no files are kept here, send the medium itself as base64"
            raise FieldError(message, inner="type")
        return data

    @model_validator(mode="after")
    def _check_carrier(self) -> Self:
        needed = ("media_type", "data") if self.type == "base64" else ("url",)
        for name in ("media_type", "data", "url"):
            if (getattr(self, name) is None) == (name in needed):
                if name in needed:
                    raise FieldError("is missing", "missing_parameter", name)
                raise FieldError(f"does not belong to type {self.type!r}", inner=name)
        return self

    def address(self) -> str:
        """Return the address that other dialects know media by."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


class Block(Body):
    """A piece of content. `signature` and `data` are read if this server wrote them."""

    api: ClassVar[str] = "block"
    type: Annotated[str, Field(json_schema_extra={"enum": list(_FIELDS)})]
    text: str | None = None
    source: Source | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        check_kind(data, _FIELDS, _UNSUPPORTED, "text or image")
        return data

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        needed, more = _FIELDS[self.type]
        for name in needed:
            if getattr(self, name) is None:
                raise FieldError("is missing", "missing_parameter", name)
        for name in _OWN:
            if name not in (*needed, *more) and getattr(self, name) is not None:
                raise FieldError(f"does not belong to a block of type {self.type!r}", inner=name)
        if isinstance(self.content, list):
            check_kinds(self.content, RESULT_KINDS, "content")
        return self


class SystemBlock(Body):
    """A piece of the system's text."""

    api: ClassVar[str] = "block"
    type: Literal["text"]
    text: str


class AnthropicMessage(Body):
    """One message; a system message is system text wherever it stands."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @model_validator(mode="after")
    def _check_belonging(self) -> Self:
        kinds = {"user": USER_KINDS, "assistant": ASSISTANT_KINDS, "system": ("text",)}
        if isinstance(self.content, list):
            check_kinds(self.content, kinds[self.role], "content")
        return self


def check_kinds(blocks: list[Block], allowed: tuple[str, ...], where: str) -> None:
    """Raise FieldError for a block that does not belong where it stands."""
    for i, block in enumerate(blocks):
        if block.type not in allowed:
            message = f"{block.type!r} does not belong here, want {', '.join(allowed)}"
            raise FieldError(message, inner=f"{where}[{i}].type")
