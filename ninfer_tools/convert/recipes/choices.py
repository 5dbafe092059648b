"""What a recipe chose (rules V-82 to V-86, V-127 to V-132)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ninfer_tools.convert.recipes.recipe_file import RecipeFile
from ninfer_tools.convert.rules import Assignment


@dataclass(frozen=True)
class UseChoice:
    """What a recipe said of one (parameter, input); None where it said nothing."""

    policy: str | None = None
    divisor: np.float32 | None = None


@dataclass(frozen=True)
class Computed:
    """A function of the recipe that makes rows: values, or codes and scales of `format`."""

    function: Callable[[Any], Any]
    gives_codes: bool
    file: RecipeFile

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


@dataclass(frozen=True)
class Choices:
    """What a recipe chose; `shared` maps a parameter to the one whose elements it takes, `groups`
    are stored in one tensor each, `computed` maps parameters to what makes their rows."""

    assigned: Mapping[str, Assignment] = field(default_factory=dict)
    uses: Mapping[tuple[str, str], UseChoice] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    separate: frozenset[str] = frozenset()
    groups: tuple[tuple[str, ...], ...] = ()
    computed: Mapping[str, Computed] = field(default_factory=dict)

    def identify(self, inputs_sha256: str) -> str:
        """Return a digest (hexadecimal) that also depends on the code that computes rows."""
        if not self.computed:
            return inputs_sha256
        digest = hashlib.sha256(inputs_sha256.encode())
        for name, item in sorted(self.computed.items()):
            digest.update(f"{name}\0{item.name}\0{item.gives_codes}\0{item.file.sha256}\0".encode())
        return digest.hexdigest()


def list_notices(choices: Choices) -> list[str]:
    """Return a notice for every shared parameter, and one for computed rows."""
    found = [
        f"{name} takes the elements of {target}: its own tensor is not stored"
        for name, target in choices.shared.items()
    ]
    if choices.computed:
        names = ", ".join(dict.fromkeys(item.name for item in choices.computed.values()))
        found.append(
            f"parameters whose rows the recipe computes ({names}): {len(choices.computed)}; "
            "figures hold them against what it computed, `ninfer verify` against the checkpoint"
        )
    return found
