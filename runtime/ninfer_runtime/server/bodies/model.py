"""Models of bodies: strict types, unknown fields refused, errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.fields import NO_OPS

_SHOWN = 80
# JSON's words in the place of Python's.
_WORDS = {
    "model_type": "want an object", "dict_type": "want an object", "list_type": "want an array",
    "none_required": "only null is supported",
}  # fmt: skip
_TYPES = ("string_type", "list_type", "dict_type", "model_type", "int_type")


def _read_integral(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Behind the bounds, or the document would not have them.
Integral = BeforeValidator(_read_integral)


class Body(BaseModel):
    """A body or an object inside one. `api` names its no-ops, which may have any value."""

    model_config = ConfigDict(extra="forbid", strict=True)
    api: ClassVar[str] = ""
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _drop_no_ops(cls, data: Any) -> Any:
        quiet = NO_OPS.get(cls.api, {})
        if not quiet or not isinstance(data, Mapping):
            return data
        return {name: value for name, value in data.items() if name not in quiet}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, reason in NO_OPS.get(cls.api, {}).items():
            schema["properties"].setdefault(name, {"description": f"No effect: {reason}."})
        return schema

    @classmethod
    def read(cls, value: Any) -> Self:
        """Return the body of a JSON value; ApiError 400 naming the first field at fault."""
        body = read_model(cls, value)
        body._given = value
        return body

    @property
    def given(self) -> dict[str, Any]:
        """The whole body as it was sent, its members in the client's order."""
        return self._given


_Model = TypeVar("_Model", bound=BaseModel)


def read_model(model: type[_Model], value: Any) -> _Model:
    """Return `value` as a model; ApiError 400 naming the first field at fault."""
    if not isinstance(value, dict):
        raise invalid(f"request body is a JSON {_kind(value)}, want an object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> ApiError:
    found = _choose_fault(error)
    where = name_place(found["loc"])
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        where += f".{cause.inner}" if where and cause.inner else cause.inner
        return invalid(f"{where}: {cause}", where, cause.code)
    if found["type"] == "extra_forbidden":
        return invalid(f"unknown field {where}", where, "unknown_parameter")
    if found["type"] == "missing":
        return invalid(f"field {where} is missing", where, "missing_parameter")
    message = _WORDS.get(found["type"]) or _lower(found["msg"])
    return invalid(f"{where}: {message}, got {_show(found['input'])}", where, "invalid_value")


def _choose_fault(error: ValidationError) -> ErrorDetails:
    """Return the fault to name: an unknown field first, then whatever form got furthest.

    Where a field may have several forms each of them complains, most of them only of the type.
    """
    faults = error.errors(include_url=False)
    for fault in faults:
        if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            return fault
    return max(faults, key=lambda fault: (_depth(fault["loc"]), fault["type"] not in _TYPES))


def _depth(place: tuple[int | str, ...]) -> int:
    return sum(not (isinstance(step, str) and _is_form(step)) for step in place)


def name_place(place: tuple[int | str, ...]) -> str:
    """Return a place as `messages[0].content[1].type`, without the names of forms."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not _is_form(step):
            text += f".{step}" if text else step
    return text[:200]


def _is_form(step: str) -> bool:
    """Pydantic puts the form of a union into the place: `str`, `list[Part]`, `function-...`."""
    plain = ("str", "int", "float", "bool", "dict", "none", "constrained-str")
    return step in plain or "[" in step or step[:1].isupper() or "-" in step


def _show(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict | list) else _kind(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _lower(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


Count = Annotated[int, Field(ge=1, le=2**31 - 1), Integral]
