"""The plan of a conversion: every byte position, and where every byte comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Component, Proposal
from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_formats.inventories.profiles import Profile, build_profile
from ninfer_formats.write_plan import (
    DirectoryDraft,
    WritePlan,
    make_resource,
    make_tensor,
    place_objects,
    plan_v3,
)
from ninfer_tools.convert.fingerprint import read_fingerprint
from ninfer_tools.convert.inventory import Inventory, build_inventory
from ninfer_tools.convert.proposal import choose_tokens, default_rows, read_counts
from ninfer_tools.convert.recipe import Choices, RecipeError, apply_recipe, list_notices
from ninfer_tools.convert.request import OpenedSource, Request
from ninfer_tools.convert.rules import Assignment, assign_formats
from ninfer_tools.convert.sources.mapping import SourceMap, map_sources
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.preflight import Preflight, find_problems
from ninfer_tools.convert.sources.resources import ROLES
from ninfer_tools.convert.sources.token_table import read_token_table

TOKEN_IDS = "proposal/token_ids"
CONVERTER = {"converter": "ninfer", "rules": 1}


@dataclass(frozen=True)
class ConversionPlan:
    """A conversion that can start.

    `literals` holds the bytes of objects that are not encoded from a source: resources, token ids
    and activation divisors. `digest` (hexadecimal) is equal exactly when all output bytes are.
    """

    preflight: Preflight
    geometry: ModelGeometry
    sources: Mapping[str, ParameterSource]
    assigned: Mapping[str, Assignment]
    parents: Mapping[str, Parent]
    literals: Mapping[str, bytes]
    written: WritePlan
    digest: str
    proposal_rows: int
    notices: tuple[str, ...]


def plan_conversion(
    request: Request, opened: Mapping[str, OpenedSource], weights: bool
) -> tuple[Preflight, ConversionPlan | None]:
    """Return what preflight found and, when nothing forbids the conversion, its plan.

    `weights` False plans from headers alone; the artifact id is then not the final one.
    """
    checkpoints = {name: item.checkpoint for name, item in opened.items()}
    found = find_problems(
        checkpoints, request.components, None, request.resources, read_scales=weights
    )
    if found.problems or found.geometry is None or found.sources is None:
        return found, None
    try:
        return found, _plan(request, opened, found, found.geometry, weights)
    except RecipeError:  # its traceback is worth showing under --debug
        raise
    except NinferError as error:
        return replace(found, problems=(error,)), None


def _plan(
    request: Request,
    opened: Mapping[str, OpenedSource],
    found: Preflight,
    geometry: ModelGeometry,
    weights: bool,
) -> ConversionPlan:
    base = opened["base"]
    name = request.name or base.name
    resources = _choose_resources(request, base, found.components)
    tokens, notices = _choose_proposal(request, base, found, geometry)
    sources = _map(opened, found, geometry, tokens).sources
    rows = None if tokens is None else len(tokens)
    parameters = list_parameters(geometry, found.components, rows)
    profile = build_profile(request.profile, geometry, name.lower())
    choices = _follow_recipe(request, opened, found, parameters, profile, sources)
    shared = choices.shared
    parameters = tuple(p._replace(alias_of=shared.get(p.name, p.alias_of)) for p in parameters)
    assigned = assign_formats(parameters, profile, sources, request.rules, choices.assigned)
    tied = geometry.text.tie_word_embeddings
    inventory = build_inventory(parameters, assigned, sources, tied, profile.separate, choices)
    literals = resources | _literals(inventory, tokens)
    identity = _identify(opened, assigned, literals, weights)
    draft = _draft(geometry, resources, inventory, rows)
    draft = replace(
        draft, metadata={"name": name}, provenance=_provenance(request, opened, profile, identity)
    )
    written = plan_v3(draft, request.output.name, request.max_file_bytes, None, identity.encode())
    digest = hashlib.sha256(b"".join(file.header for file in written.files)).hexdigest()
    parents = {parent.id: parent for parent in inventory.parents}
    return ConversionPlan(
        found, geometry, sources, assigned, parents, literals, written, digest, rows or 0,
        (*found.notices, *notices, *list_notices(choices)),
    )  # fmt: skip


def _follow_recipe(
    request: Request,
    opened: Mapping[str, OpenedSource],
    found: Preflight,
    parameters: Sequence[Parameter],
    profile: Profile,
    sources: Mapping[str, ParameterSource],
) -> Choices:
    if request.recipe is None:
        return Choices()
    before = assign_formats(parameters, profile, sources, ())
    labels = {name: item.checkpoint.label for name, item in opened.items()}
    config = opened["base"].checkpoint.config
    return apply_recipe(
        request.recipe, parameters, before, sources, config, found.components, labels
    )


def _choose_resources(
    request: Request, base: OpenedSource, components: tuple[str, ...]
) -> dict[str, bytes]:
    """Return resources by object id, in file order."""
    given = {**base.checkpoint.resources, **request.resources}
    return {
        f"resource/{owner}/{role}": given[role]
        for role, owner in ROLES.items()
        if owner in components and role in given
    }


def _choose_proposal(
    request: Request, base: OpenedSource, found: Preflight, geometry: ModelGeometry
) -> tuple[np.ndarray | None, list[str]]:
    drafts = any(name not in ("text", "vision") for name in found.components)
    vocabulary = geometry.text.vocab_size
    given = {**base.checkpoint.resources, **request.resources}
    table = read_token_table(given, base.checkpoint.label, vocabulary)
    rows = request.proposal_rows
    if rows is None:
        rows = default_rows(vocabulary, table.count) if drafts else 0
    if not rows:
        return None, []
    if request.ranking is not None:
        counts = read_counts(request.ranking, vocabulary, table.count)
        return choose_tokens(counts, table.special, rows), []
    counts = np.zeros(table.count, np.int64)
    notice = "the proposal head has no ranking: it holds the lowest ids and all special tokens"
    return choose_tokens(counts, table.special, rows), [notice]


def _map(
    opened: Mapping[str, OpenedSource],
    found: Preflight,
    geometry: ModelGeometry,
    tokens: np.ndarray | None,
) -> SourceMap:
    if tokens is None and found.sources is not None:
        return found.sources
    checkpoints = {name: item.checkpoint for name, item in opened.items()}
    return map_sources(geometry, found.components, checkpoints, tokens)


def _literals(inventory: Inventory, tokens: np.ndarray | None) -> dict[str, bytes]:
    found = {id: np.array(value, "<f4").tobytes() for id, value in inventory.divisors.items()}
    if tokens is not None:
        found[inventory.bindings[TOKEN_IDS].parts[0].object] = tokens.astype("<i4").tobytes()
    return found


def _draft(
    geometry: ModelGeometry,
    resources: Mapping[str, bytes],
    inventory: Inventory,
    proposal_rows: int | None,
) -> DirectoryDraft:
    objects = [
        *(make_resource(id, len(data)) for id, data in resources.items()),
        *(make_tensor(item.id, item.shape, item.format) for item in inventory.parents),
        *(make_tensor(id, (), nf.FP32) for id in inventory.divisors),
    ]
    components = []
    for name, config in component_configs(geometry).items():
        prefix = f"resource/{name}/"
        roles = {id.removeprefix(prefix): id for id in resources if id.startswith(prefix)}
        indexed = name == "text" and proposal_rows is not None
        proposal = Proposal("indexed", proposal_rows) if indexed else None
        components.append(
            Component(name, config, None if name == "text" else "text", roles, proposal)
        )
    return DirectoryDraft(components, place_objects(objects), inventory.bindings, inventory.uses)


def _identify(
    opened: Mapping[str, OpenedSource],
    assigned: Mapping[str, Assignment],
    literals: Mapping[str, bytes],
    weights: bool,
) -> str:
    """Return a digest (hexadecimal) of everything that decides payload bytes."""
    digest = hashlib.sha256(json.dumps(CONVERTER).encode())
    for name, item in opened.items():
        fingerprint = read_fingerprint(item.checkpoint, weights)
        digest.update(f"{name}\0{fingerprint}\0".encode())
    for name, item in assigned.items():
        digest.update(f"{name}\0{item.format}\0{item.method}\0".encode())
    for id, data in literals.items():
        digest.update(f"{id}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _provenance(
    request: Request, opened: Mapping[str, OpenedSource], profile: Profile, identity: str
) -> dict[str, Any]:
    """Return what the directory says of its making: nothing that depends on machine or folder."""
    recipe = {} if request.recipe is None else {"recipe": request.recipe.as_record()}
    return {
        **CONVERTER,
        **recipe,
        "profile": profile.name,
        "set": [rule.text for rule in request.rules],
        "sources": {name: _pin(item) for name, item in opened.items()},
        "inputs_sha256": identity,
    }


def _pin(item: OpenedSource) -> str:
    # A local path would make equal conversions differ.
    return "local folder" if item.snapshot is None else str(item.snapshot.pinned)
