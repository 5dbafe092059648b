"""Logical parameters of a model: names, shapes and input sites, in file order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.roles import EXPERT, Block, Role, blocks_of


class Parameter(NamedTuple):
    """One logical parameter.

    `inputs` are the input sites it is multiplied with: a parameter with one is a projection.
    `role` is its name without the residency, layer and expert numbers (`attention/query`,
    `moe/experts/{}/gate`); `layer` the layer within its residency. `alias_of` is the name of the
    parameter whose elements it shares.
    """

    name: str
    shape: tuple[int, ...]
    direct_format: str
    residency: str
    inputs: tuple[str, ...]
    role: str
    layer: int | None
    alias_of: str | None


def list_parameters(
    geometry: ModelGeometry, components: Iterable[str], proposal_rows: int | None = None
) -> tuple[Parameter, ...]:
    """Return the parameters of the chosen components, aliases last.

    `components` are names out of text, mtp, vision, dflash, dflash2; `proposal_rows` is the row
    count of an indexed proposal head, None for no such head. Raises UsageError for a component
    that the geometry does not have, for a missing `text`, and for more rows than the vocabulary.
    """
    chosen = _check_components(geometry, components, proposal_rows)
    own: list[Parameter] = []
    aliases: list[Parameter] = []
    for block in blocks_of(geometry, chosen, proposal_rows):
        for parameter in _expand_block(block):
            (aliases if parameter.alias_of else own).append(parameter)
    return (*own, *aliases)


def _check_components(
    geometry: ModelGeometry, components: Iterable[str], proposal_rows: int | None
) -> frozenset[str]:
    chosen = frozenset(components)
    if "text" not in chosen:
        raise UsageError("component text is required", got=", ".join(sorted(chosen)) or "none")
    unknown = sorted(chosen.difference(geometry.components))
    if unknown:
        want = ", ".join(geometry.components)
        raise UsageError("the model has no such component", got=", ".join(unknown), want=want)
    if proposal_rows is not None and not 1 <= proposal_rows <= geometry.text.vocab_size:
        want = f"1 to {geometry.text.vocab_size}"
        raise UsageError("impossible number of proposal rows", got=proposal_rows, want=want)
    return chosen


def _expand_block(block: Block) -> Iterator[Parameter]:
    for per_expert, run in groupby(block.roles, key=lambda role: role.per_expert):
        if per_expert:
            yield from _expand_experts(block, tuple(run))
        else:
            for role in run:
                yield _expand_role(block, role)


def _expand_role(block: Block, role: Role) -> Parameter:
    prefix = f"{block.prefix}/"
    inputs = tuple(site[1:] if site[0] == "/" else prefix + site for site in role.sites)
    alias = None if role.alias_of is None else prefix + role.alias_of
    return Parameter(
        prefix + role.name,
        role.shape,
        role.direct_format,
        block.residency,
        inputs,
        role_name(block, role),
        block.layer,
        alias,
    )


def _expand_experts(block: Block, roles: tuple[Role, ...]) -> Iterator[Parameter]:
    # Cut the expert number out once: this loop makes nearly all parameters of a large model.
    cut = [(_expand_role(block, role), role.name.split(EXPERT)) for role in roles]
    rows = [
        (p, f"{block.prefix}/{head}", tail, _shared_or_split(p.inputs)) for p, (head, tail) in cut
    ]
    for expert in range(block.num_experts):
        for base, head, tail, (inputs, site) in rows:
            if site is not None:
                inputs = (f"{site[0]}{expert}{site[1]}",)
            yield Parameter(
                f"{head}{expert}{tail}",
                base.shape,
                base.direct_format,
                base.residency,
                inputs,
                base.role,
                base.layer,
                None,
            )


def _shared_or_split(
    inputs: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """Return the inputs if all experts share them, else the two halves around the number."""
    head, found, tail = inputs[0].partition(EXPERT)
    return inputs, (head, tail) if found else None


def role_name(block: Block, role: Role) -> str:
    """Return a role's name relative to its residency, without the layer number."""
    inside = block.prefix.removeprefix(block.residency).strip("/")
    if block.layer is not None or not inside:
        return role.name
    return f"{inside}/{role.name}"
