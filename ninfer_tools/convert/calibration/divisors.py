"""Activation divisors of NVFP4 products, and where each is from (rules V-113 to V-116)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import INPUT_DIVISOR, Use
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.calibration.record import Calibration
from ninfer_tools.convert.recipes.choices import Choices, UseChoice
from ninfer_tools.convert.rules import Assignment
from ninfer_tools.convert.sources.name_lists import name_some
from ninfer_tools.convert.sources.parameter_source import ParameterSource

# The largest E2M1 value times the largest E4M3 scale.
FULL_SCALE = 6 * 448
SOURCE, CALIBRATED, RECIPE, NONE = "source", "calibrated", "recipe", "none"


@dataclass(frozen=True)
class Activation:
    """What one product got: policy, divisor (None without one) and where the divisor is from."""

    parameter: str
    input: str
    policy: str | None
    divisor: float | None
    origin: str
    nvfp4: bool

    def as_record(self) -> dict[str, Any]:
        return {
            "parameter": self.parameter, "input": self.input, "policy": self.policy,
            "divisor": self.divisor, "from": self.origin,
        }  # fmt: skip


def derive_divisor(largest: float | None) -> np.float32 | None:
    """Return float32(2688 / largest), the divisor of an input whose largest magnitude is given.

    With it the block that holds the largest value gets the largest scale, 448. None where nothing
    was seen, and where the quotient is no finite number above zero.
    """
    if not largest:
        return None
    with np.errstate(over="ignore", under="ignore"):
        divisor = np.float32(FULL_SCALE / largest)
    return divisor if math.isfinite(divisor) and divisor > 0 else None


def add_divisors(
    choices: Choices,
    calibration: Calibration | None,
    parameters: Iterable[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
) -> Choices:
    """Return the choices with a calibrated divisor for every NVFP4 product that has none.

    A divisor that a recipe gives goes before a stored one, that before a calibrated one.
    """
    if calibration is None:
        return choices
    uses = dict(choices.uses)
    for p in parameters:
        if assigned[p.name].format != nf.NVFP4 or _stored(p.name, sources) is not None:
            continue
        for site in p.inputs:
            known = uses.get((p.name, site), UseChoice())
            divisor = derive_divisor(calibration.largest_input(p.name, site))
            if known.divisor is None and divisor is not None:
                uses[p.name, site] = replace(known, divisor=divisor)
    return replace(choices, uses=uses)


def list_activations(
    uses: Sequence[Use],
    divisors: Mapping[str, np.float32],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    recipe: Choices,
) -> tuple[Activation, ...]:
    """Return what every use got; `divisors` by object id, `recipe` as it was before calibration."""
    return tuple(_describe(use, divisors, assigned, sources, recipe) for use in uses)


def _describe(
    use: Use,
    divisors: Mapping[str, np.float32],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    recipe: Choices,
) -> Activation:
    bound = use.auxiliaries.get(INPUT_DIVISOR)
    value = None if bound is None else float(divisors[bound.parts[0].object])
    choice = recipe.uses.get((use.parameter, use.input), UseChoice())
    origin = NONE
    if value is not None:
        stored = _stored(use.parameter, sources) is not None
        origin = SOURCE if stored else CALIBRATED
        origin = origin if choice.divisor is None else RECIPE
    is_nvfp4 = assigned[use.parameter].format == nf.NVFP4
    return Activation(
        use.parameter, use.input, use.activation_policy, value, origin, is_nvfp4
    )  # fmt: skip


def _stored(name: str, sources: Mapping[str, ParameterSource]) -> np.float32 | None:
    source = sources.get(name)
    return None if source is None else source.input_divisor


def count_origins(activations: Iterable[Activation]) -> dict[str, int]:
    """Return how many NVFP4 products got their divisor from where, `none` for those without."""
    counts: dict[str, int] = dict.fromkeys((SOURCE, CALIBRATED, RECIPE, NONE), 0)
    for item in activations:
        if item.nvfp4:
            counts[item.origin] += 1
    return counts


def list_calibration_notices(
    calibration: Calibration | None, activations: Sequence[Activation]
) -> list[str]:
    """Return notices for NVFP4 products that a calibration should have served and could not."""
    if calibration is None:
        return []
    mine = [item for item in activations if item.nvfp4]
    if not any(item.origin == CALIBRATED for item in mine):
        return ["no product takes a calibrated divisor: only those of nvfp4 weights do"]
    left = dict.fromkeys(_unserved(calibration, mine))
    if not left:
        return []
    return [
        f"{len(left)} projections got no input from the calibration text and stay without "
        f"activation divisor: {name_some(list(left))}"
    ]


def _unserved(calibration: Calibration, items: Iterable[Activation]) -> Iterator[str]:
    for item in items:
        if item.divisor is None and calibration.covers(item.parameter, item.input):
            yield item.parameter
