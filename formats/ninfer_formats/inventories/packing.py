"""Packing: which parameters are stored together in one parent tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.layouts.geometry import encoded_size

# Per mixer or feed-forward, the groups to try in order; a parameter is packed by the first that
# fits. Expert groups are built from the number of experts.
_LAYER_GROUPS: tuple[tuple[str, ...], ...] = (
    ("attention/query", "attention/key", "attention/gate", "attention/value"),
    ("attention/query", "attention/key"),
    ("attention/gate", "attention/value"),
    ("gdn/query", "gdn/key", "gdn/value", "gdn/z"),
    ("gdn/query", "gdn/key"),
    ("gdn/value", "gdn/z"),
    ("gdn/a_projection", "gdn/b_projection"),
    ("mlp/gate", "mlp/up"),
    ("moe/router", "moe/shared_score"),
    ("moe/experts/{}/gate", "moe/experts/{}/up"),
    ("moe/experts/{}/down",),
    ("moe/shared/gate", "moe/shared/up"),
)
_VISION_GROUPS: tuple[tuple[str, ...], ...] = (
    ("attention/query", "attention/key", "attention/value"),
    ("attention/query_bias", "attention/key_bias", "attention/value_bias"),
)
_DRAFTER_GROUPS: tuple[tuple[str, ...], ...] = (
    ("attention/query", "attention/key", "attention/value"),
    ("mlp/gate", "mlp/up"),
)
_GROUPS = {
    "text": _LAYER_GROUPS,
    "mtp": _LAYER_GROUPS,
    "vision": _VISION_GROUPS,
    "dflash": _DRAFTER_GROUPS,
    "dflash2": _DRAFTER_GROUPS,
}


class ParameterRange(NamedTuple):
    """Elements [begin, end) of a parent hold the whole of `parameter`, in C order."""

    parameter: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Parent:
    """One stored tensor and the parameters that tile it."""

    id: str
    shape: tuple[int, ...]
    format: str
    layout: str
    bytes: int
    ranges: tuple[ParameterRange, ...]


def pack_parameters(
    parameters: Sequence[Parameter],
    formats: Mapping[str, str],
    separate: frozenset[str],
    keys: Mapping[str, object] | None = None,
) -> tuple[Parent, ...]:
    """Return the parents that hold `parameters`: packed groups first, then the rest in order.

    `formats` has the format of every parameter by name; a group with a role in `separate` is not
    packed, nor are parameters whose `keys` differ (an NVFP4 divisor, say). Ids are `weight/000000`
    counted up. Raises ArtifactError when a shape does not fit its
    format.
    """
    groups = list(_groups_that_fit(parameters, formats, separate, keys or {}))
    packed = {p.name for group in groups for p in group}
    groups += [(p,) for p in parameters if p.name not in packed]
    return tuple(
        _build_parent(f"weight/{i:06d}", group, formats[group[0].name])
        for i, group in enumerate(groups)
    )


def _groups_that_fit(
    parameters: Iterable[Parameter],
    formats: Mapping[str, str],
    separate: frozenset[str],
    keys: Mapping[str, object],
) -> Iterator[tuple[Parameter, ...]]:
    for residency, roles in _layers(parameters):
        for group in _GROUPS[residency]:
            found = [roles.get(role) for role in group]
            if None in found or separate.intersection(group):
                continue
            # Experts are interleaved: all roles of expert 0, then of expert 1, and so on.
            members = tuple(p for row in zip(*filter(None, found), strict=True) for p in row)
            if len(members) > 1 and _fits(members, formats, keys):
                for role in group:
                    del roles[role]
                yield members


def _layers(
    parameters: Iterable[Parameter],
) -> Iterator[tuple[str, dict[str, list[Parameter]]]]:
    """Yield every layer's parameters by role, in order; other parameters are never packed."""
    layers: dict[tuple[str, int], dict[str, list[Parameter]]] = {}
    for p in parameters:
        if p.layer is not None:
            layers.setdefault((p.residency, p.layer), {}).setdefault(p.role, []).append(p)
    for (residency, _), roles in layers.items():
        yield residency, roles


def _fits(
    members: Sequence[Parameter], formats: Mapping[str, str], keys: Mapping[str, object]
) -> bool:
    return len({(formats[p.name], keys.get(p.name), p.shape[1:]) for p in members}) == 1


def _build_parent(id: str, members: Sequence[Parameter], format: str) -> Parent:
    shape = members[0].shape
    if len(members) > 1:
        shape = (sum(p.shape[0] for p in members), *shape[1:])
    layout = nf.FORMATS[format].layout
    ends = list(accumulate(math.prod(p.shape) for p in members))
    ranges = tuple(map(ParameterRange, (p.name for p in members), (0, *ends), ends))
    return Parent(id, shape, format, layout, encoded_size(format, layout, shape), ranges)
