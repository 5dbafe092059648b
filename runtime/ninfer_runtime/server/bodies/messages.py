"""Messages of a conversation as Chat Completions writes them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.field_error import FieldError, check_kind
from ninfer_runtime.server.bodies.model import Body, Integral

_KINDS = ("text", "refusal", "image_url", "image", "video_url", "video")
_UNSUPPORTED = ("input_audio", "audio", "audio_url", "file", "input_file")
# What every kind needs; `image` and `video` may also stand in the longer field.
_CARRIERS = {
    "text": ("text",), "refusal": ("refusal",),
    "image_url": ("image_url",), "image": ("image", "image_url"),
    "video_url": ("video_url",), "video": ("video", "video_url"),
}  # fmt: skip


class MediaUrl(Body):
    """`url` is a data: or http(s): address. `detail` has no effect: the model's own sizes hold."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ContentPart(Body):
    """A piece of content: text, an image or a video."""

    api: ClassVar[str] = "part"
    type: Annotated[str, Field(json_schema_extra={"enum": list(_KINDS)})]
    text: str | None = None
    refusal: str | None = None
    image_url: str | MediaUrl | None = None
    image: str | None = None
    video_url: str | MediaUrl | None = None
    video: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        check_kind(data, _KINDS, _UNSUPPORTED, "text, image_url or video_url")
        return data

    @model_validator(mode="after")
    def _check_carrier(self) -> Self:
        present = [name for name in _CARRIERS if getattr(self, name) is not None]
        allowed = _CARRIERS[self.type]
        if not present:
            raise FieldError("is missing", "missing_parameter", allowed[0])
        if len(present) > 1 or present[0] not in allowed:
            stray = next(name for name in present if name not in allowed or name != present[0])
            raise FieldError(f"does not belong to a part of type {self.type!r}", inner=stray)
        return self


class CalledFunction(Body):
    """`arguments` are a JSON object, as text or as it is."""

    name: str
    arguments: str | dict[str, Any] | None = None


class MessageCall(Body):
    """A call the assistant has made."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: Annotated[int, Integral] | None = None


class Message(Body):
    """One message. Reasoning of the assistant may come under any of its three names."""

    api: ClassVar[str] = "message"
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    function_call: None = None

    @model_validator(mode="after")
    def _check_belonging(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise FieldError("only an assistant message has calls", inner="tool_calls")
        if self.content is None and self.role in ("system", "developer", "user"):
            raise FieldError("is missing", "missing_parameter", "content")
        return self

    def plain(self) -> dict[str, Any]:
        """Return the message as a mapping, without what was not given."""
        found = self.model_dump(exclude_none=True)
        if self.role == "function":
            found["role"] = "tool"
        for call in found.get("tool_calls", ()):
            call.pop("index", None)
        return found
