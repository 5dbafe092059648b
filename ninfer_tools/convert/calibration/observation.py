"""The largest magnitudes that reach the projections of a layer (V-103 and V-104)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from ninfer_formats.errors import NumericError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.calibration.experts import ObservedExperts
from ninfer_tools.convert.calibration.layer_weights import name_in_layer
from ninfer_tools.convert.sources.places import find_places

# A parameter and one of its input sites.
Product = tuple[str, str]
_EXPERTS = "/moe/experts/"


class Maxima:
    """The largest magnitude of every product that was seen."""

    def __init__(self) -> None:
        self._pending: dict[Product, torch.Tensor] = {}
        self._values: dict[Product, float] = {}

    def add(self, products: Iterable[Product], inputs: torch.Tensor) -> None:
        """Count a non-empty tensor as input of some products."""
        largest = torch.linalg.vector_norm(inputs, math.inf)
        for product in products:
            known = self._pending.get(product)
            self._pending[product] = largest if known is None else torch.maximum(known, largest)

    def settle(self) -> None:
        """Take over what was added; NumericError when a magnitude is NaN or infinite."""
        for (parameter, site), tensor in self._pending.items():
            value = float(tensor)
            if not math.isfinite(value):
                raise NumericError(
                    "the calibration text drives an input out of float32",
                    where=f"{parameter} @ {site}", got=value,
                )  # fmt: skip
            self._values[parameter, site] = max(value, self._values.get((parameter, site), 0.0))
        self._pending.clear()

    def find(self, parameter: str, site: str) -> float | None:
        """Return the settled magnitude, None where nothing came."""
        return self._values.get((parameter, site))


def observe_layer(
    layer: Any, parameters: Iterable[Parameter], geometry: ModelGeometry, maxima: Maxima
) -> None:
    """Let every projection of a decoder layer report its inputs to `maxima`."""
    products: dict[str, list[Product]] = defaultdict(list)
    experts: dict[int, list[Parameter]] = defaultdict(list)
    for p in parameters:
        if _EXPERTS in p.name:
            experts[int(p.name.rsplit("/", 2)[1])].append(p)
        elif p.inputs:
            tensor = name_in_layer(find_places(p, geometry)[0].tensor, p.layer)
            products[tensor.removesuffix(".weight")].append((p.name, p.inputs[0]))
    for name, found in products.items():
        layer.get_submodule(name).register_forward_pre_hook(_report(found, maxima))
    if experts:
        _observe_experts(layer.mlp.experts, experts, maxima)


def _report(products: list[Product], maxima: Maxima) -> Any:
    def report(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        maxima.add(products, inputs[0])

    return report


def _observe_experts(
    module: ObservedExperts, experts: dict[int, list[Parameter]], maxima: Maxima
) -> None:
    """A routed expert is multiplied with the rows that come to it, not with the whole input."""

    def observe(expert: int, inputs: torch.Tensor, product: torch.Tensor) -> None:
        for seen, is_down in ((inputs, False), (product, True)):
            names = [
                (p.name, p.inputs[0])
                for p in experts[expert]
                if p.name.endswith("/down") == is_down
            ]
            maxima.add(names, seen)

    module.observe = observe
