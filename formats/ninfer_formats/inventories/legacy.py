"""Inventories of version 1 and 2 artifacts: every object by name, order, shape and format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories import legacy_tables as tables
from ninfer_formats.inventories.family import PROPOSAL_ROWS
from ninfer_formats.inventories.geometry import (
    DFLASH2,
    DRAFTERS,
    FULL_ATTENTION,
    ModelGeometry,
)
from ninfer_formats.inventories.packing import ParameterRange
from ninfer_formats.inventories.parameters import role_name
from ninfer_formats.inventories.profiles import Profile
from ninfer_formats.inventories.roles import EXPERT, Block, Role, blocks_of
from ninfer_formats.layouts.geometry import encoded_size

GROUPS = ("text", "proposal", "mtp", "vision", *DRAFTERS)


@dataclass(frozen=True, slots=True)
class ExpertStack:
    """Names and element counts of a parent that stacks roles expert by expert.

    Iterating makes them one by one: a file has tens of thousands, and few readers want them.
    """

    prefix: str
    roles: tuple[tuple[str, int], ...]
    num_experts: int

    def __iter__(self) -> Iterator[tuple[str, int]]:
        parts = [(f"{self.prefix}/{name}".split(EXPERT), size) for name, size in self.roles]
        for expert in range(self.num_experts):
            for (head, tail), size in parts:
                yield f"{head}{expert}{tail}", size


@dataclass(frozen=True, slots=True)
class LegacyTensor:
    """One tensor of a version 1/2 directory.

    `members` gives (parameter, elements) in storage order; it is empty for an activation divisor,
    whose `auxiliary_of` names the parameters it belongs to. `group` is one of `GROUPS`.
    """

    name: str
    group: str
    shape: tuple[int, ...]
    format: str
    members: Iterable[tuple[str, int]]
    auxiliary_of: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        return nf.FORMATS[self.format].layout

    @property
    def bytes(self) -> int:
        return encoded_size(self.format, self.layout, self.shape)

    @property
    def ranges(self) -> tuple[ParameterRange, ...]:
        """The parameters as ranges of elements; together they tile the tensor."""
        return tuple(_accumulate(self.members))


def _accumulate(members: Iterable[tuple[str, int]]) -> Iterator[ParameterRange]:
    begin = 0
    for name, size in members:
        yield ParameterRange(name, begin, begin + size)
        begin += size


@dataclass(frozen=True)
class LegacyInventory:
    """What a version 1/2 file of one identity holds: six resources, then the tensors in order.

    `form` names an inventory that only borrows its identity; "" is the one the identity is for.
    """

    model_id: str
    weights_id: str
    form: str
    geometry: ModelGeometry
    profile: Profile
    proposal_rows: int
    tensors: tuple[LegacyTensor, ...]

    @property
    def resources(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in tables.FRONTEND_RESOURCES)

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Object names by group; resources belong to the group of their component."""
        groups: dict[str, list[str]] = {}
        for name, _, owner in tables.FRONTEND_RESOURCES:
            groups.setdefault(owner, []).append(name)
        for tensor in self.tensors:
            groups.setdefault(tensor.group, []).append(tensor.name)
        return {name: tuple(groups[name]) for name in GROUPS if name in groups}

    @cached_property
    def by_name(self) -> Mapping[str, LegacyTensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    def select(self, groups: Iterable[str] | None) -> tuple[LegacyTensor, ...]:
        """Return the tensors of some groups in file order; None means all."""
        if groups is None:
            return self.tensors
        chosen = frozenset(groups)
        return tuple(tensor for tensor in self.tensors if tensor.group in chosen)


def build_legacy(
    model_id: str,
    weights_id: str,
    geometry: ModelGeometry,
    profile: Profile,
    form: str = "",
    proposal_rows: int = PROPOSAL_ROWS,
) -> LegacyInventory:
    """Return the version 1/2 inventory of a model under a profile, drafter included."""
    tensors = tuple(_list_tensors(_Emitter(geometry, profile, proposal_rows), geometry))
    return LegacyInventory(model_id, weights_id, form, geometry, profile, proposal_rows, tensors)


class _Emitter:
    """Makes the tensors of one block from a table of entries."""

    def __init__(self, geometry: ModelGeometry, profile: Profile, rows: int) -> None:
        blocks = blocks_of(geometry, frozenset(geometry.components), rows)
        self._blocks = {block.prefix: block for block in blocks}
        self.profile = profile

    def emit(
        self, group: str, table: tables.Table, prefix: str, block: str = ""
    ) -> Iterator[LegacyTensor]:
        """Yield the tensors `prefix`/entry, made of roles of `block` (same name if left out)."""
        owner = self._blocks[block or prefix]
        roles = {role.name: role for role in owner.roles}
        for name, *members in table:
            stacked = [roles[member] for member in members or [name]]
            tensor = self._stack(group, f"{prefix}/{name}", owner, stacked)
            yield tensor
            if self.profile.needs_divisor(tensor.format):
                scalar = f"{prefix}/{tables.DIVISOR_OWNERS[name]}/input_scale_divisor"
                served = tuple(parameter for parameter, _ in tensor.members)
                yield LegacyTensor(scalar, group, (), nf.FP32, (), served)

    def _stack(self, group: str, name: str, block: Block, roles: list[Role]) -> LegacyTensor:
        first = roles[0]
        role = role_name(block, first)
        format = self.profile.format_of(block.residency, role, block.layer, first.direct_format)
        sizes = tuple((role.name, math.prod(role.shape)) for role in roles)
        members: Iterable[tuple[str, int]]
        if first.per_expert:
            members, count = ExpertStack(block.prefix, sizes, block.num_experts), block.num_experts
        else:
            members, count = tuple((f"{block.prefix}/{role}", n) for role, n in sizes), 1
        rows = count * sum(role.shape[0] for role in roles)
        return LegacyTensor(name, group, (rows, *first.shape[1:]), format, members)


def _list_tensors(emitter: _Emitter, geometry: ModelGeometry) -> Iterator[LegacyTensor]:
    attention, gdn, feed_forward = _layer_tables(emitter.profile, geometry)
    yield from emitter.emit("text", (("token_embedding",),), "text")
    for i, kind in enumerate(geometry.text.layer_types):
        table = attention if kind == FULL_ATTENTION else gdn
        yield from emitter.emit("text", (*table, *feed_forward), f"text/layers/{i}")
    yield from emitter.emit("text", (("final_norm",), ("output_head",)), "text")
    draft = (("draft_head", "head"), ("draft_head_token_ids", "token_ids"))
    yield from emitter.emit("proposal", draft, "text", "proposal")
    yield from emitter.emit("mtp", tables.MTP_STEM, "mtp")
    mtp_layer = (*tables.ATTENTION_FUSED, *feed_forward)
    yield from emitter.emit("mtp", mtp_layer, "mtp/layer", "mtp/layers/0")
    yield from emitter.emit("mtp", tables.FINAL_NORM, "mtp")
    yield from _list_vision(emitter, geometry)
    yield from _list_drafter(emitter, geometry)


def _layer_tables(
    profile: Profile, geometry: ModelGeometry
) -> tuple[tables.Table, tables.Table, tables.Table]:
    """Return the tables of an attention layer, a GDN layer and a feed-forward."""
    feed_forward = tables.MOE if geometry.text.is_moe else tables.MLP
    key, value = (profile.format_of("text", f"gdn/{n}", 0, nf.BF16) for n in ("key", "value"))
    if key != value:
        return tables.ATTENTION_SPLIT, tables.GDN_SPLIT, feed_forward
    separate = "gdn/a_projection" in profile.separate
    gdn = tables.GDN_FUSED_A_B_SEPARATE if separate else tables.GDN_FUSED
    return tables.ATTENTION_FUSED, gdn, feed_forward


def _list_vision(emitter: _Emitter, geometry: ModelGeometry) -> Iterator[LegacyTensor]:
    if geometry.vision is None:
        return
    yield from emitter.emit("vision", tables.VISION_STEM, "vision")
    for b in range(geometry.vision.depth):
        yield from emitter.emit("vision", tables.VISION_LAYER, f"vision/layers/{b}")
    yield from emitter.emit("vision", tables.VISION_MERGER, "vision/merger")


def _list_drafter(emitter: _Emitter, geometry: ModelGeometry) -> Iterator[LegacyTensor]:
    if geometry.drafter is None:
        return
    kind = geometry.drafter.kind
    layer = tables.DFLASH2_LAYER if kind == DFLASH2 else tables.DFLASH_LAYER
    yield from emitter.emit(kind, tables.DRAFTER_STEM, kind)
    for i in range(geometry.drafter.num_hidden_layers):
        yield from emitter.emit(kind, layer, f"{kind}/layers/{i}")
    yield from emitter.emit(kind, tables.FINAL_NORM, kind)
    if kind == DFLASH2:
        yield from emitter.emit(kind, tables.SELECTOR, f"{kind}/candidate_selector")
