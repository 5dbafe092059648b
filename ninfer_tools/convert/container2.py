"""A conversion straight to container version 2: one of the registered inventories, or a refusal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import INPUT_DIVISOR, Identity, Tensor, Use
from ninfer_formats.errors import ArtifactError, NinferError, UsageError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.legacy import LegacyInventory, LegacyTensor
from ninfer_formats.inventories.packing import ParameterRange, Parent
from ninfer_formats.inventories.profiles import Profile, build_profile
from ninfer_formats.inventories.published import PINNED_RESOURCES
from ninfer_formats.inventories.registered import COMMUNITY, registered_inventory
from ninfer_formats.write_plan import (
    DEFAULT_MAX_FILE_BYTES,
    DirectoryDraft,
    place_objects,
    plan_v2,
)
from ninfer_tools.convert.contract_reasons import (
    VERSION_3,
    Offer,
    find_reasons,
    list_candidates,
)
from ninfer_tools.convert.rules import IMPORT
from ninfer_tools.convert.sources.name_lists import shorten_problems
from ninfer_tools.migrate.contract import Contract, find_contract
from ninfer_tools.migrate.draft import Draft
from ninfer_tools.migrate.emission import list_losses
from ninfer_tools.migrate.groups import is_same_model

if TYPE_CHECKING:
    from ninfer_tools.convert.plan import ConversionPlan

# The two 27B releases.
_OLD, _NEW = "qwen3.6-27b", "qwen3.8-27b"


class ContractRefusal(ArtifactError):
    """No registered inventory is filled; `problems` are the reasons, one line each."""

    def __init__(self, problems: tuple[NinferError, ...]) -> None:
        super().__init__("container version 2 cannot hold this conversion")
        self.problems = problems


def check_options(version: int, max_file_bytes: int) -> None:
    """Refuse options that mean nothing for version 2, which is one file."""
    if version == 2 and max_file_bytes != DEFAULT_MAX_FILE_BYTES:
        raise UsageError(
            "container version 2 is always one file", got=f"--max-file-bytes {max_file_bytes}",
            remedy="leave --max-file-bytes out, or write version 3",
        )  # fmt: skip


def choose_profile(
    profile: str, container: int, geometry: ModelGeometry, name: str, resources: Mapping[str, bytes]
) -> Profile:
    """Return the profile of a conversion.

    Version 2 knows `nvfp4` as the registered inventory of each 27B release: the name tells which
    one, else the pinned tokenizer of the older, else it is the newer.
    """
    if container == 3 or profile != "nvfp4":
        return build_profile(profile, geometry, name.lower())
    tokenizer = hashlib.sha256(resources.get("resource/text/tokenizer.json", b"")).hexdigest()
    pinned = tokenizer == PINNED_RESOURCES["qwen3.6"]["tokenizer.json"]
    old = name.lower() == _OLD or (name.lower() != _NEW and pinned)
    inventory = registered_inventory(_OLD if old else _NEW, "nvfp4")
    if not is_same_model(inventory.geometry.text, geometry.text):
        return build_profile(profile, geometry, name.lower())
    return inventory.profile


def to_container2(
    plan: ConversionPlan, directory: DirectoryDraft, inputs_sha256: str, output: str
) -> ConversionPlan:
    """Return the plan that writes the same parameters as a version 2 file called `output`.

    `directory` is what version 3 would say of the plan. Raises ArtifactError or ContractRefusal
    with every reason where no registered inventory is filled.
    """
    draft = _draft(plan, directory)
    contract, inventory = _choose_contract(plan, draft)
    owners = {(p.id, r.begin): r.parameter for p in plan.parents.values() for r in p.ranges}
    parents = {
        item.id: _parent(tensor, draft, owners, item.bytes)
        for item in contract.objects
        if (tensor := inventory.by_name.get(item.id)) is not None and not tensor.auxiliary_of
    }
    # What has to be encoded has no content yet.
    literals = {id: data for id, data in contract.contents.items() if isinstance(data, bytes)}
    _check_parents(plan, parents.values())
    written = plan_v2(contract.identity, place_objects(contract.objects), output)
    lost = [f"version 2 does not keep {loss}" for loss in list_losses(draft, contract.divisors)]
    model_id = contract.identity.model_id
    if str(directory.metadata["name"]).lower() != model_id:
        lost.append(f"version 2 calls this model {model_id}: it has its sizes and formats")
    # A version 2 directory does not say what it was made of.
    digest = hashlib.sha256(written.files[0].header + inputs_sha256.encode()).hexdigest()
    return replace(
        plan, parents=parents, literals=literals, written=written, digest=digest,
        notices=(*plan.notices, *lost), identity=contract.identity,
    )  # fmt: skip


def _draft(plan: ConversionPlan, directory: DirectoryDraft) -> Draft:
    objects = {item.id: item for item in directory.objects}
    name = directory.metadata["name"]
    return Draft(
        {item.name: item for item in directory.components}, objects, plan.literals,
        directory.bindings, tuple(directory.uses), {"name": name},
    )  # fmt: skip


def _choose_contract(plan: ConversionPlan, draft: Draft) -> tuple[Contract, LegacyInventory]:
    """Return the contract that is filled, else raise the reasons against the nearest one."""
    candidates = list_candidates(plan.geometry)
    if any((item.model_id, item.weights_id) == (_NEW, "nvfp4") for item in candidates):
        candidates.append(registered_inventory(_NEW, "nvfp4", COMMUNITY))
    offer = Offer(
        plan.geometry, tuple(draft.components), plan.proposal_rows,
        frozenset(role for c in draft.components.values() for role in c.resources),
        draft.bindings, {n: t for n, t in draft.objects.items() if isinstance(t, Tensor)},
        {name: item.origin for name, item in plan.assigned.items()},
    )  # fmt: skip
    attempts = [[*find_reasons(offer, i), *_divisor_reasons(draft, i)] for i in candidates]
    filled = [i for i, found in zip(candidates, attempts, strict=True) if not found]
    if not filled:
        raise ContractRefusal(shorten_problems(min(attempts, key=len)))
    wanted = Identity(filled[0].model_id, filled[0].weights_id) if len(filled) == 1 else None
    try:
        contract = find_contract(draft, wanted)
    except ArtifactError as error:
        if len(filled) > 1:
            error.remedy = "choose one with --name MODEL"
        raise
    name = (contract.identity.model_id, contract.identity.weights_id, contract.form)
    return contract, next(i for i in filled if (i.model_id, i.weights_id, i.form) == name)


def _divisor_reasons(draft: Draft, inventory: LegacyInventory) -> list[ArtifactError]:
    """Return one reason for NVFP4 products without an activation divisor, one for unequal ones."""
    uses: dict[str, list[Use]] = {}
    for use in draft.uses:
        uses.setdefault(use.parameter, []).append(use)
    without, unequal = [], []
    for tensor in inventory.tensors:
        bound = [uses[name] for name in tensor.auxiliary_of if name in uses]
        bindings = [u.auxiliaries.get(INPUT_DIVISOR) for found in bound for u in found]
        if None in bindings:
            without.append(tensor.name)
        elif len({draft.contents[b.parts[0].object] for b in bindings if b}) > 1:
            unequal.append(tensor.name)
    name = f"{inventory.model_id}/{inventory.weights_id}"
    found = []
    if without:
        what = f"{name} holds {len(without)} activation divisors that the sources lack"
        remedy = (
            "name a checkpoint that has them with --source quantized=SRC, or compute them with "
            "--calibrate TEXTFILE, or take --profile groupwise-int"
        )
        found.append(ArtifactError(what, where=without[0], remedy=remedy))
    if unequal:
        what = f"{name} holds one activation divisor where {len(unequal)} projections have several"
        found.append(ArtifactError(what, where=unequal[0], remedy=VERSION_3))
    return found


def _parent(
    tensor: LegacyTensor, draft: Draft, owners: Mapping[tuple[str, int], str], count: int
) -> Parent:
    """Return the parent with the elements of a version 2 tensor, in its order.

    A shared parameter has the elements of the one that owns them.
    """
    ranges, begin = [], 0
    for name, size in tensor.members:
        part = draft.bindings[name].parts[0]
        owner = owners[part.object, part.begin]
        ranges.append(ParameterRange(owner, begin, begin + size))
        begin += size
    layout = nf.FORMATS[tensor.format].layout
    return Parent(tensor.name, tensor.shape, tensor.format, layout, count, tuple(ranges))


def _check_parents(plan: ConversionPlan, parents: Iterable[Parent]) -> None:
    """Refuse parents that version 3 would have split: one tensor has one method, one divisor."""
    problems = []
    for parent in parents:
        names = [item.parameter for item in parent.ranges]
        methods = {plan.assigned[name].method for name in names}
        # A set of bytes: equal to the bit.
        divisors: set[bytes] = set()
        if parent.format == nf.NVFP4 and methods == {IMPORT}:
            found = [plan.sources[name].weight_divisor for name in names]
            divisors = {divisor.tobytes() for divisor in found if divisor is not None}
        if len(methods) > 1:
            what = "version 2 stores it as one matrix, whose parts come by different methods"
            problems.append(
                ArtifactError(
                    what, where=parent.id, got=", ".join(sorted(methods)),
                    remedy="convert to version 3, then `ninfer migrate FILE OUT --to 2`",
                )
            )  # fmt: skip
        elif len(divisors) > 1:
            what = "version 2 stores it as one matrix, but the stored parts have unequal divisors"
            got = f"{len(divisors)} weight divisors"
            problems.append(ArtifactError(what, where=parent.id, got=got, remedy=VERSION_3))
    if problems:
        raise ContractRefusal(shorten_problems(problems))
