"""Bodies of /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ninfer_runtime.server.bodies.chat import ChatBody
from ninfer_runtime.server.bodies.completions import TokenNumber
from ninfer_runtime.server.bodies.model import Body


class TokenizeBody(Body):
    """With `parse_special` control tokens spelled in the text are those tokens; no token is put
    in front with or without `add_special`."""

    content: str
    parse_special: bool | None = None
    with_pieces: bool | None = None
    add_special: bool | None = None


class DetokenizeBody(Body):
    """Ids of tokens."""

    tokens: Annotated[list[TokenNumber], Field(max_length=2**22)]


class ApplyTemplateBody(ChatBody):
    """A body of /v1/chat/completions; what does not make the prompt is checked and not used."""
