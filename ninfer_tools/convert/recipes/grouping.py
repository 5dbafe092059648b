"""Parameters that a recipe stores in one tensor (rule V-128)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.packing import ParameterRange, Parent, pack_parameters
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.layouts.geometry import encoded_size


def check_group(members: Sequence[Parameter]) -> None:
    """Refuse members that could never lie in one tensor; formats are not known yet."""
    if len(members) < 2:
        raise UsageError("a group has two members or more", got=len(members))
    first = members[0]
    for p in members[1:]:
        for what, got, want in (
            ("components", p.residency, first.residency),
            ("widths", list(p.shape[1:]), list(first.shape[1:])),
        ):
            if got != want:
                raise UsageError(
                    f"group has different {what}", where=p.name, got=got,
                    want=f"{want} of {first.name}",
                )  # fmt: skip


def pack_with_groups(
    parameters: Sequence[Parameter],
    formats: Mapping[str, str],
    separate: frozenset[str],
    keys: Mapping[str, object],
    groups: Sequence[Sequence[str]],
) -> tuple[Parent, ...]:
    """Return the parents of `pack_parameters`, those of `groups` before them.

    `keys` are equal where parameters may lie together. Raises UsageError for a group that does
    not agree in format and key.
    """
    by_name = {p.name: p for p in parameters}
    grouped = {name for group in groups for name in group}
    chosen = [_join([by_name[name] for name in group], formats, keys) for group in groups]
    left = [p for p in parameters if p.name not in grouped]
    rest = pack_parameters(left, formats, separate, keys)
    return tuple(replace(parent, id=f"weight/{i:06d}") for i, parent in enumerate((*chosen, *rest)))


def _join(
    members: Sequence[Parameter], formats: Mapping[str, str], keys: Mapping[str, object]
) -> Parent:
    first = members[0]
    for p in members[1:]:
        if formats[p.name] != formats[first.name]:
            raise UsageError(
                "group has different formats", where=p.name, got=formats[p.name],
                want=f"{formats[first.name]} of {first.name}",
            )  # fmt: skip
        if keys[p.name] != keys[first.name]:
            raise UsageError(
                f"group has different methods or divisors: {p.name} and {first.name}",
                remedy="leave one out, or assign a format and method to all",
            )
    format = formats[first.name]
    layout = nf.FORMATS[format].layout
    shape = (sum(p.shape[0] for p in members), *first.shape[1:])
    ends = list(accumulate(math.prod(p.shape) for p in members))
    ranges = tuple(map(ParameterRange, (p.name for p in members), (0, *ends), ends))
    return Parent("", shape, format, layout, encoded_size(format, layout, shape), ranges)
