"""Weights of one layer as the tensors of an unquantised checkpoint (V-102)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.packing import BLOCK_VALUES
from ninfer_tools.convert.sources.finite_checks import check_values
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.places import find_places

Weights = dict[str, torch.Tensor]


def read_weights(
    parameters: Iterable[Parameter],
    sources: Mapping[str, ParameterSource],
    geometry: ModelGeometry,
    device: str,
) -> Weights:
    """Return float32 tensors by official name within the layer (`self_attn.q_proj.weight`).

    Whatever form the source stores, values are those that it defines; experts come stacked. Raises
    NumericError naming tensor, file and row for a NaN or infinite weight.
    """
    found: dict[str, NDArray[np.float32]] = {}
    for p in parameters:
        # The last place is the one of stacked experts.
        place = find_places(p, geometry)[-1]
        name = name_in_layer(place.tensor, p.layer)
        if name not in found:
            found[name] = np.empty(place.shape, np.float32)
        target = found[name]
        for begin, end, values in _read_blocks(sources[p.name]):
            if place.transposed:
                target.reshape(-1, p.shape[0])[:, begin:end] = values.T
            else:
                rows = place.selection.numbers(begin, end)
                target.reshape(-1, values.shape[1])[rows] = values
    return {name: torch.from_numpy(values).to(device) for name, values in found.items()}


def name_in_layer(tensor: str, layer: int | None) -> str:
    """Return a tensor's name without `layers.N.`."""
    return tensor if layer is None else tensor.removeprefix(f"layers.{layer}.")


def read_rows(source: ParameterSource, ids: NDArray[np.int32]) -> torch.Tensor:
    """Return rows of a matrix as float32 [len(ids), columns], in the order of `ids`."""
    picked = source.pick(source.parameter._replace(shape=(len(ids), source.columns)), ids)
    values = picked.read_values(0, len(ids))
    check_values(picked, 0, values)
    return torch.from_numpy(np.ascontiguousarray(values))


def _read_blocks(
    source: ParameterSource,
) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """Yield (first row, end, float32 [n, columns]) in blocks of about 4M values."""
    step = max(1, BLOCK_VALUES // source.columns)
    for begin in range(0, source.rows, step):
        end = min(begin + step, source.rows)
        values = source.read_values(begin, end)
        check_values(source, begin, values)
        yield begin, end, values
