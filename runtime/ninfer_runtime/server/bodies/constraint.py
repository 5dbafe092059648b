"""What an answer must match: a JSON schema, a regular expression or a grammar."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body
from ninfer_runtime.server.requests import Constraint

_ONE_OF = ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
           "grammar")  # fmt: skip
_SIGNS = frozenset(r"\.+*?()|[]{}^$/-&~#")


def _quote(text: str) -> str:
    """Return a regular expression of exactly this text; only ASCII signs need a backslash."""
    return "".join(f"\\{sign}" if sign in _SIGNS else sign for sign in text)


class JsonSchema(Body):
    """`schema` is kept to whether or not `strict` is set; name and description are not used."""

    name: str
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(Body):
    """`json_object` may bring a `schema`, as some servers have it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise FieldError(f"does not go with type {self.type!r}", inner="json_schema")
        if self.schema_ is not None and self.type != "json_object":
            raise FieldError(f"does not go with type {self.type!r}", inner="schema")
        return self

    def choose(self) -> Constraint | None:
        schema = self.json_schema.schema_ if self.json_schema else self.schema_
        if schema is not None:
            return Constraint("json_schema", json.dumps(schema), "response_format")
        return (
            Constraint("json_object", param="response_format")
            if self.type == "json_object"
            else None
        )


class Constrained(Body):
    """At most one of these. `guided_grammar` is Lark or GBNF (which has `::=`), `grammar` GBNF."""

    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: Annotated[str, Field(min_length=1)] | None = None
    guided_choice: Annotated[list[str], Field(min_length=1)] | None = None
    guided_grammar: Annotated[str, Field(min_length=1)] | None = None
    grammar: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_single(self) -> Self:
        stated = [name for name in _ONE_OF if getattr(self, name) is not None]
        if self.response_format is not None and self.response_format.choose() is None:
            stated.remove("response_format")
        if len(stated) > 1:
            raise FieldError(f"does not go together with {stated[0]}", inner=stated[1])
        return self

    def choose_constraint(self) -> Constraint | None:
        """Return the one that is stated."""
        if self.guided_json is not None:
            schema = self.guided_json
            text = schema if isinstance(schema, str) else json.dumps(schema)
            return Constraint("json_schema", text, "guided_json")
        if self.guided_regex is not None:
            return Constraint("regex", self.guided_regex, "guided_regex")
        if self.guided_choice is not None:
            choices = "|".join(_quote(text) for text in self.guided_choice)
            return Constraint("regex", choices, "guided_choice")
        if self.guided_grammar is not None:
            kind = "gbnf" if "::=" in self.guided_grammar else "lark"
            return Constraint(kind, self.guided_grammar, "guided_grammar")
        if self.grammar is not None:
            return Constraint("gbnf", self.grammar, "grammar")
        return None if self.response_format is None else self.response_format.choose()
