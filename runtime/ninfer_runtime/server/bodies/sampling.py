"""Fields of bodies that say how tokens are drawn and when to stop."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body, Count, Integral
from ninfer_runtime.server.requests import SamplingFields

Penalty = Annotated[float, Field(ge=-2, le=2)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), Integral]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
MaxTokens = Annotated[int, Field(ge=-1, le=2**63 - 1), Integral]
MOST_STOPS = 4


class Drawn(Body):
    """`top_k` 0 is no limit, `temperature` 0 is greedy."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1), Integral] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: Seed | None = None
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=512)] | None = None

    def choose_sampling(self) -> SamplingFields:
        """Return what is stated; a value left out is the server's or the model's."""
        top_k = 0 if self.top_k == -1 else self.top_k
        return SamplingFields(
            temperature=self.temperature, top_k=top_k, top_p=self.top_p, min_p=self.min_p,
            presence=self.presence_penalty, frequency=self.frequency_penalty,
            repetition=self.repetition_penalty, seed=self.seed,
            bias={int(id): bias for id, bias in (self.logit_bias or {}).items()},
        )  # fmt: skip


class Sampled(Drawn):
    """`max_tokens` -1 and null are the server's default, and what goes beyond the context is cut
    to it."""

    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    max_tokens: MaxTokens | None = None
    n: Count | None = None
    stream: bool | None = None
    ignore_eos: bool | None = None

    @field_validator("max_tokens", "max_completion_tokens", check_fields=False)
    @classmethod
    def _check_room(cls, value: int | None) -> int | None:
        if value == 0:
            raise FieldError("want at least 1 token, or -1 for the server's default")
        return None if value == -1 else value

    def choose_stops(self) -> tuple[str, ...]:
        stop = self.stop
        return (stop,) if isinstance(stop, str) else tuple(stop or ())


class StreamOptions(Body):
    """`include_usage` adds a last chunk with the usage. `include_obfuscation` has no effect:
    chunks are not padded."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
