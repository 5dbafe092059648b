"""What the function of a recipe sees: the model and the sources (rule V-81)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.parameters import Parameter


@dataclass(frozen=True)
class ModelParameter:
    """One parameter as recipes see it.

    `format` is what it gets without the recipe; `inputs` are the input sites it is multiplied with.
    """

    name: str
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    format: str
    direct_format: str
    residency: str
    layer: int | None

    @property
    def projection(self) -> bool:
        return bool(self.inputs)


@dataclass(frozen=True)
class Model:
    """The model that is converted: parameters by name, config.json, components, and the names that
    are stored together without the recipe."""

    parameters: Mapping[str, ModelParameter]
    config: Mapping[str, Any]
    components: tuple[str, ...]
    packing_groups: tuple[tuple[str, ...], ...] = ()


class SourceLabels(dict[str, str]):
    """Folder or pinned reference of every source by name; a missing one names the option."""

    def __missing__(self, name: str) -> str:
        raise UsageError("source is not given", got=name, remedy=f"add --source {name}=SRC")


def describe_parameter(p: Parameter, format: str) -> ModelParameter:
    """Return a parameter as recipes see it."""
    return ModelParameter(
        p.name, p.shape, p.inputs, format, p.direct_format, p.residency, p.layer
    )  # fmt: skip
