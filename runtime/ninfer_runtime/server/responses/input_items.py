"""Items of a conversation as the Responses API writes them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.field_error import FieldError, check_kind
from ninfer_runtime.server.bodies.model import Body

MESSAGE, CALL, RESULT = "message", "function_call", "function_call_output"
REASONING, REFERENCE = "reasoning", "item_reference"
# Of each kind the fields it must have and those it may have.
_FIELDS = {
    MESSAGE: (("role", "content"), ("role", "content")),
    CALL: (("call_id", "name", "arguments"), ("call_id", "name", "arguments", "namespace")),
    RESULT: (("call_id", "output"), ("call_id", "output", "name", "namespace")),
    REASONING: ((), ("summary", "content", "encrypted_content")),
    REFERENCE: (("id",), ()),
}  # fmt: skip
_OWN = ("role", "content", "call_id", "name", "namespace", "arguments", "output", "summary",
        "encrypted_content")  # fmt: skip
_PARTS = ("input_text", "output_text", "text", "refusal", "reasoning_text", "input_image",
          "input_video")  # fmt: skip
_CARRIERS = {"refusal": "refusal", "input_image": "image_url", "input_video": "video_url"}
_UNSUPPORTED = ("input_file", "input_audio", "output_audio")


class InputPart(Body):
    """A piece of a message, of reasoning or of a result. `detail` has no effect: the model's own
    sizes hold."""

    api: ClassVar[str] = "input_part"
    type: Annotated[str, Field(json_schema_extra={"enum": list(_PARTS)})]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    video_url: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        check_kind(data, _PARTS, _UNSUPPORTED, "input_text or input_image")
        if isinstance(data, dict) and data.get("file_id") is not None:
            message = "no files are kept here, send the image itself as a data: URL"
            raise FieldError(message, "invalid_value", "file_id")
        return data

    @model_validator(mode="after")
    def _check_carrier(self) -> Self:
        carrier = _CARRIERS.get(self.type, "text")
        if getattr(self, carrier) is None:
            raise FieldError("is missing", "missing_parameter", carrier)
        for name in ("text", "refusal", "image_url", "video_url"):
            if name != carrier and getattr(self, name) is not None:
                raise FieldError(f"does not belong to a part of type {self.type!r}", inner=name)
        return self


class SummaryPart(Body):
    """A piece of the summary of reasoning."""

    type: Literal["summary_text"]
    text: str


class InputItem(Body):
    """A message, a call, its result, earlier reasoning, or the id of an item of a kept response.

    A call whose `status` is `incomplete` was cut and is left out.
    """

    api: ClassVar[str] = "item"
    type: Annotated[str, Field(json_schema_extra={"enum": list(_FIELDS)})] | None = None
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: list[SummaryPart] | None = None
    encrypted_content: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, data: Any) -> Any:
        kind = data.get("type") if isinstance(data, dict) else None
        if isinstance(kind, str) and kind not in _FIELDS:
            known = ", ".join(_FIELDS)
            raise FieldError(f"{kind[:80]!r} is not supported, want {known}", inner="type")
        return data

    @property
    def kind(self) -> str:
        """The type, which messages and references may leave out."""
        if self.type is not None:
            return self.type
        return MESSAGE if self.role is not None or self.id is None else REFERENCE

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        needed, allowed = _FIELDS[self.kind]
        for name in needed:
            if getattr(self, name) is None:
                raise FieldError("is missing", "missing_parameter", name)
        for name in _OWN:
            if name not in allowed and getattr(self, name) is not None:
                raise FieldError(f"does not belong to an item of type {self.kind!r}", inner=name)
        return self

    def plain(self) -> dict[str, Any]:
        """Return the item as a mapping with its type, without what was not given."""
        return {**self.model_dump(exclude_none=True), "type": self.kind}
