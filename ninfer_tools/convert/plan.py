"""The plan of a conversion: every byte position, and where every byte comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Component, Identity, Proposal
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_formats.inventories.profiles import Profile
from ninfer_formats.write_plan import (
    DirectoryDraft,
    WritePlan,
    make_resource,
    make_tensor,
    place_objects,
    plan_v3,
)
from ninfer_tools.convert.calibration.divisors import (
    Activation,
    add_divisors,
    list_activations,
    list_calibration_notices,
)
from ninfer_tools.convert.calibration.identity import identify_sources
from ninfer_tools.convert.calibration.record import check_fit
from ninfer_tools.convert.collector import pause_collector
from ninfer_tools.convert.container2 import ContractRefusal, choose_profile, to_container2
from ninfer_tools.convert.fingerprint import read_fingerprint
from ninfer_tools.convert.inventory import Inventory, build_inventory
from ninfer_tools.convert.proposal import Ranking, choose_tokens, default_rows, rank_tokens
from ninfer_tools.convert.recipe import apply_recipe
from ninfer_tools.convert.recipes.choices import Choices, list_notices
from ninfer_tools.convert.recipes.computed_source import follow_functions
from ninfer_tools.convert.recipes.recipe_file import RecipeError
from ninfer_tools.convert.request import OpenedSource, Request
from ninfer_tools.convert.rules import Assignment, assign_formats
from ninfer_tools.convert.sources.mapping import SourceMap, map_sources
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.preflight import Preflight, find_problems
from ninfer_tools.convert.sources.resources import ROLES
from ninfer_tools.convert.sources.token_table import TOKENIZER
from ninfer_tools.convert.unread_scales import list_unread_scales

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
    identity: Identity | None = None  # of version 2
    activations: tuple[Activation, ...] = ()  # one per use
    ranking: Ranking | None = None


@pause_collector()
def plan_conversion(
    request: Request, opened: Mapping[str, OpenedSource], weights: bool
) -> tuple[Preflight, ConversionPlan | None]:
    """Return what preflight found and, when nothing forbids the conversion, its plan.

    `weights` False plans from headers alone; the artifact id is then not the final one.
    """
    checkpoints = {name: item.checkpoint for name, item in opened.items()}
    found = find_problems(
        checkpoints,
        request.components,
        None,
        request.resources,
        read_scales=weights,
        resource_paths={role: str(path) for role, path in request.resource_files.items()},
    )
    if found.problems or found.geometry is None or found.sources is None:
        return found, None
    try:
        return found, _plan(request, opened, found, found.geometry, weights)
    except ContractRefusal as refusal:
        return replace(found, problems=refusal.problems), None
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
    tokens, ranking = _choose_proposal(request, base, found, geometry, weights)
    notices = () if ranking is None else ranking.notices
    sources = _map(opened, found, geometry, tokens).sources
    rows = None if tokens is None else len(tokens)
    parameters = list_parameters(geometry, found.components, rows)
    profile = choose_profile(request.profile, request.container, geometry, name, resources)
    choices = _follow_recipe(request, opened, found, geometry, parameters, profile, sources)
    shared = choices.shared
    parameters = tuple(p._replace(alias_of=shared.get(p.name, p.alias_of)) for p in parameters)
    assigned = assign_formats(parameters, profile, sources, request.rules, choices.assigned)
    choices, sources = follow_functions(choices, parameters, assigned, sources)
    tied = geometry.text.tie_word_embeddings
    calibrated = request.calibration
    if calibrated is not None:
        checkpoints = {key: item.checkpoint for key, item in opened.items()}
        check_fit(calibrated, parameters, identify_sources(checkpoints, weights))
    chosen = add_divisors(choices, calibrated, parameters, assigned, sources)
    inventory = build_inventory(parameters, assigned, sources, tied, profile.separate, chosen)
    activations = list_activations(inventory.uses, inventory.divisors, assigned, sources, choices)
    literals = resources | _literals(inventory, tokens)
    inputs = choices.identify(_hash_inputs(opened, assigned, literals, weights))
    draft = _draft(geometry, resources, inventory, rows)
    provenance = _provenance(request, opened, profile, inputs)
    if ranking is not None:
        provenance |= ranking.as_provenance()
    draft = replace(draft, metadata={"name": name}, provenance=provenance)
    written = plan_v3(draft, request.output.name, request.max_file_bytes, None, inputs.encode())
    digest = hashlib.sha256(b"".join(file.header for file in written.files)).hexdigest()
    parents = {parent.id: parent for parent in inventory.parents}
    plan = ConversionPlan(
        found, geometry, sources, assigned, parents, literals, written, digest, rows or 0,
        (*found.notices, *notices, *list_notices(choices), *list_unread_scales(sources, assigned),
         *list_calibration_notices(calibrated, activations)), activations=activations,
        ranking=ranking,
    )  # fmt: skip
    if request.container == 2:
        return to_container2(plan, draft, inputs, request.output.name)
    return plan


def _follow_recipe(
    request: Request,
    opened: Mapping[str, OpenedSource],
    found: Preflight,
    geometry: ModelGeometry,
    parameters: Sequence[Parameter],
    profile: Profile,
    sources: Mapping[str, ParameterSource],
) -> Choices:
    if request.recipe is None:
        return Choices()
    before = assign_formats(parameters, profile, sources, ())
    labels = {name: item.checkpoint.label for name, item in opened.items()}
    config = opened["base"].checkpoint.config
    tied = geometry.text.tie_word_embeddings
    packed = build_inventory(parameters, before, sources, tied, profile.separate).parents
    groups = tuple(tuple(r.parameter for r in p.ranges) for p in packed if len(p.ranges) > 1)
    return apply_recipe(
        request.recipe, parameters, before, sources, config, found.components, labels, groups
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
    request: Request,
    base: OpenedSource,
    found: Preflight,
    geometry: ModelGeometry,
    weights: bool,
) -> tuple[np.ndarray | None, Ranking | None]:
    drafts = any(name not in ("text", "vision") for name in found.components)
    vocabulary = geometry.text.vocab_size
    given = {**base.checkpoint.resources, **request.resources}
    table = found.tokens
    rows = request.proposal_rows
    if rows is None:
        rows = default_rows(vocabulary, table.count) if drafts else 0
    if not rows:
        if request.ranking is not None or request.ranking_corpus:
            raise UsageError(
                "a ranking is given, but no proposal head would be made",
                remedy="--proposal-rows N makes one",
            )
        return None, None
    ranking = rank_tokens(
        request.ranking, request.ranking_corpus, given.get(TOKENIZER), vocabulary, table.count,
        # A plan that is made again after calibration counts then.
        weights and not (request.calibration is not None and request.calibration.assumed),
    )  # fmt: skip
    return choose_tokens(ranking.counts, table.special, rows), ranking


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


def _hash_inputs(
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
    request: Request, opened: Mapping[str, OpenedSource], profile: Profile, inputs_sha256: str
) -> dict[str, Any]:
    """Return what the directory says of its making: nothing that depends on machine or folder."""
    recipe = {} if request.recipe is None else {"recipe": request.recipe.as_record()}
    given = request.calibration
    calibration = {} if given is None else {"calibration": {"sha256": given.sha256}}
    return {
        **CONVERTER,
        **recipe,
        **calibration,
        "profile": profile.name,
        "set": [rule.text for rule in request.rules],
        "sources": {name: _pin(item) for name, item in opened.items()},
        "inputs_sha256": inputs_sha256,
    }


def _pin(item: OpenedSource) -> str:
    # A local path would make equal conversions differ.
    return "local folder" if item.snapshot is None else str(item.snapshot.pinned)
