"""Frozen records of a directory: the same for every container version.

Records that come by the ten thousand are named tuples, which are three times cheaper to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

A16_ONLY = "A16Only"
ALLOW_A8 = "AllowA8"
ALLOW_A4 = "AllowA4"
ACTIVATION_POLICIES = (A16_ONLY, ALLOW_A8, ALLOW_A4)
INPUT_DIVISOR = "activation_input_divisor"


class Tensor(NamedTuple):
    """A stored tensor. `offset` and `bytes` are in the logical payload; `divisors` counts the
    weight divisors of an NVFP4 payload (stacks of rows), 1 in every published file."""

    id: str
    shape: tuple[int, ...]
    format: str
    layout: str
    offset: int
    bytes: int
    divisors: int = 1
    kind = "tensor"

    @property
    def end(self) -> int:
        return self.offset + self.bytes


class Resource(NamedTuple):
    """A stored file, as it is."""

    id: str
    encoding: str
    offset: int
    bytes: int
    kind = "resource"

    @property
    def end(self) -> int:
        return self.offset + self.bytes


StoredObject = Tensor | Resource


class Part(NamedTuple):
    """A half-open range of C-order elements of one tensor."""

    object: str
    begin: int
    end: int


class Binding(NamedTuple):
    """What a logical parameter is made of. `whole` says it was bound to a whole object."""

    parts: tuple[Part, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Use:
    """One product of a parameter with an input site, with what an engine may do there."""

    parameter: str
    input: str
    activation_policy: str | None = None
    auxiliaries: Mapping[str, Binding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Domain of the proposal head: `full`, or `indexed` with a number of rows."""

    domain: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """One component (text, vision, mtp, dflash, dflash2, …) with its architecture config."""

    name: str
    config: Mapping[str, Any]
    target: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the artifact; the entry file itself has no path."""

    path: str | None
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a version 1 or 2 artifact; version 1 has no weights_id."""

    model_id: str
    weights_id: str | None = None

    def __str__(self) -> str:
        return self.model_id if self.weights_id is None else f"{self.model_id}/{self.weights_id}"
