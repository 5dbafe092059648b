"""Version 2 contracts: which registered inventory a draft fills, and from which bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ninfer_formats.directory import INPUT_DIVISOR, Identity, Resource, StoredObject, Tensor, Use
from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.inventories.legacy import LegacyInventory, LegacyTensor
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.published import PINNED_RESOURCES
from ninfer_formats.inventories.registered import COMMUNITY, IDENTITIES, registered_inventory
from ninfer_formats.layouts.geometry import encoded_size
from ninfer_formats.write_plan import make_resource, make_tensor
from ninfer_tools.migrate.draft import Content, Draft, Joined, Stored, read_content
from ninfer_tools.migrate.groups import is_same_model

_KNOWN = ("text", "mtp", "vision", "dflash", "dflash2")


@dataclass(frozen=True)
class Contract:
    """A version 2 identity with its objects in order and the content of each that has one in the
    draft; `divisors` of them are activation divisors."""

    identity: Identity
    form: str
    objects: tuple[StoredObject, ...]
    contents: Mapping[str, Content]
    divisors: int


def find_contract(draft: Draft, wanted: Identity | None = None) -> Contract:
    """Return the contract that the draft fills exactly.

    Raises ArtifactError with every reason of the nearest candidate when none is filled, or with
    the candidates when several are and neither `wanted`, the recorded identity nor the tokenizer
    decides.
    """
    candidates = list(_candidates(draft, wanted))
    if not candidates:
        raise ArtifactError(
            "no version 2 contract holds this model", want=_identity_names(), got=_model_name(draft)
        )
    attempts = [_Matcher(draft, inventory).match() for inventory in candidates]
    filled = [item for item in attempts if isinstance(item, Contract)]
    if not filled:
        reasons = min((item for item in attempts if isinstance(item, list)), key=len)
        raise ArtifactError(f"no version 2 contract holds this: {'; '.join(reasons)}")
    return _decide(draft, filled, wanted)


def _candidates(draft: Draft, wanted: Identity | None) -> Iterable[LegacyInventory]:
    geometry = geometry_from_components({n: c.config for n, c in draft.components.items()})
    for model_id, weights_id in IDENTITIES:
        if wanted is not None and wanted != Identity(model_id, weights_id):
            continue
        forms = ("", COMMUNITY) if (model_id, weights_id) == ("qwen3.8-27b", "nvfp4") else ("",)
        for form in forms:
            inventory = registered_inventory(model_id, weights_id, form)
            if is_same_model(inventory.geometry.text, geometry.text):
                yield inventory


def _decide(draft: Draft, filled: list[Contract], wanted: Identity | None) -> Contract:
    if len(filled) == 1:
        return filled[0]
    hints = [wanted, draft.identity, _identity_of_tokenizer(draft, filled)]
    for hint in hints:
        chosen = [item for item in filled if item.identity == hint]
        if len(chosen) == 1:
            return chosen[0]
    named = [item for item in filled if item.identity.model_id == _model_name(draft).lower()]
    if len(named) == 1:
        return named[0]
    names = ", ".join(str(item.identity) for item in filled)
    raise ArtifactError(
        "several version 2 identities hold these bytes",
        got=names,
        remedy="choose one with --identity MODEL/WEIGHTS",
    )


def _identity_of_tokenizer(draft: Draft, filled: list[Contract]) -> Identity | None:
    tokenizer = draft.contents[draft.components["text"].resources["tokenizer.json"]]
    digest = hashlib.sha256(_content_bytes(tokenizer)).hexdigest()
    for release, pins in PINNED_RESOURCES.items():
        if digest == pins["tokenizer.json"]:
            names = [item.identity for item in filled if item.identity.model_id.startswith(release)]
            return names[0] if len(names) == 1 else None
    return None


def _content_bytes(content: Content) -> bytes:
    if isinstance(content, Stored):
        return content.artifact.raw_payload(content.object_id).tobytes()
    return read_content(content).tobytes()


def _model_name(draft: Draft) -> str:
    name = draft.metadata.get("name")
    return name if isinstance(name, str) else "unnamed model"


def _identity_names() -> str:
    return ", ".join("/".join(pair) for pair in IDENTITIES)


class _Matcher:
    """Tries to fill one inventory; collects every reason why it cannot."""

    def __init__(self, draft: Draft, inventory: LegacyInventory) -> None:
        self._draft, self._inventory = draft, inventory
        self._reasons: list[str] = []
        self._objects: list[StoredObject] = []
        self._contents: dict[str, Content] = {}
        self._uses: dict[str, list[Use]] = {}
        for use in draft.uses:
            self._uses.setdefault(use.parameter, []).append(use)

    def match(self) -> Contract | list[str]:
        """Return the contract, or the reasons against it."""
        self._check_components()
        for name, role, owner in FRONTEND_RESOURCES:
            if owner in self._draft.components:
                self._place_resource(name, role, owner)
        tensors = self._inventory.select(self._groups())
        for tensor in tensors:
            if tensor.auxiliary_of:
                self._place_divisor(tensor)
            else:
                self._place_tensor(tensor)
        if self._reasons:
            return self._reasons
        identity = Identity(self._inventory.model_id, self._inventory.weights_id)
        divisors = sum(1 for tensor in tensors if tensor.auxiliary_of)
        objects = tuple(self._objects)
        return Contract(identity, self._inventory.form, objects, self._contents, divisors)

    def _groups(self) -> list[str]:
        """Return the groups to fill; a missing component is one reason, not hundreds."""
        held = {*self._draft.components, "proposal"}
        return [group for group in self._inventory.groups if group in held]

    def _check_components(self) -> None:
        draft, inventory = self._draft, self._inventory
        held = set(inventory.geometry.components)
        for name in draft.components:
            if name not in held:
                hint = "; drop it with --drop" if name in _KNOWN else ""
                self._reasons.append(f"component {name} has no place in version 2{hint}")
        for name in ("mtp", "vision"):
            if name not in draft.components:
                self._reasons.append(f"component {name} is missing")
        proposal = draft.components["text"].proposal
        if proposal is None or proposal.rows != inventory.proposal_rows:
            rows = inventory.proposal_rows
            self._reasons.append(f"proposal head must be indexed with {rows} rows")

    def _place_resource(self, name: str, role: str, owner: str) -> None:
        target = self._draft.components[owner].resources.get(role)
        item = self._draft.objects.get(target) if target else None
        if not isinstance(item, Resource) or target is None:
            self._reasons.append(f"resource {role} is missing")
            return
        self._objects.append(make_resource(name, item.bytes))
        self._contents[name] = self._draft.contents[target]

    def _place_tensor(self, want: LegacyTensor) -> None:
        rows: list[tuple[str, int, int]] = []
        for name, size in want.members:
            binding = self._draft.bindings.get(name)
            if binding is None:
                self._reasons.append(f"parameter {name} is missing")
                return
            if sum(part.end - part.begin for part in binding.parts) != size:
                self._reasons.append(f"parameter {name} has another size")
                return
            for part in binding.parts:
                _extend(rows, part.object, part.begin, part.end)
        known = len(self._reasons)
        content = self._content_of(want, rows)
        if len(self._reasons) > known:
            return
        self._objects.append(make_tensor(want.name, want.shape, want.format))
        if content is not None:
            self._contents[want.name] = content

    def _content_of(self, want: LegacyTensor, rows: list[tuple[str, int, int]]) -> Content | None:
        """Return the content of a tensor, None with a reason, or where it is not encoded yet."""
        sources = [self._draft.objects[name] for name, _, _ in rows]
        for item in sources:
            if not isinstance(item, Tensor) or item.format != want.format or item.divisors != 1:
                got = item.format if isinstance(item, Tensor) else "a resource"
                self._reasons.append(f"{want.name} is {want.format} in version 2, stored is {got}")
                return None
        first = sources[0]
        if len(rows) == 1 and isinstance(first, Tensor) and _is_whole(rows[0], first, want):
            return self._draft.contents.get(first.id)
        return self._join(want, rows)

    def _join(self, want: LegacyTensor, rows: list[tuple[str, int, int]]) -> Content | None:
        """Return the rows of several stored matrices as one; whole rows of equal width only."""
        pieces = []
        width = math.prod(want.shape[1:])
        for name, begin, end in rows:
            content, tensor = self._draft.contents.get(name), self._draft.objects[name]
            if isinstance(content, Stored):
                tensor = content.artifact.objects[content.object_id]
            fits = not (isinstance(content, bytes | Joined) or begin % width or end % width)
            if not fits or not isinstance(tensor, Tensor) or tensor.shape[1:] != want.shape[1:]:
                self._reasons.append(f"{want.name} cannot be put together from {name}")
                return None
            if isinstance(content, Stored):
                pieces.append((content.artifact, tensor, begin // width, end // width))
        return Joined(tuple(pieces)) if len(pieces) == len(rows) else None

    def _place_divisor(self, want: LegacyTensor) -> None:
        values = set()
        for name in want.auxiliary_of:
            for use in self._uses.get(name, []):
                binding = use.auxiliaries.get(INPUT_DIVISOR)
                if binding is None:
                    self._reasons.append(f"use of {name} has no activation divisor")
                    return
                content = self._draft.contents[binding.parts[0].object]
                data = _content_bytes(content)
                begin = 4 * binding.parts[0].begin
                values.add(data[begin : begin + 4])
        if len(values) != 1:
            self._reasons.append(
                f"{want.name}: version 2 holds one activation divisor, uses have {len(values)}"
            )
            return
        self._objects.append(make_tensor(want.name, want.shape, want.format))
        self._contents[want.name] = values.pop()


def _extend(rows: list[tuple[str, int, int]], name: str, begin: int, end: int) -> None:
    """Append a range of elements, joined with the one before where they meet."""
    if rows and rows[-1][0] == name and rows[-1][2] == begin:
        rows[-1] = (name, rows[-1][1], end)
    else:
        rows.append((name, begin, end))


def _is_whole(row: tuple[str, int, int], item: Tensor, want: LegacyTensor) -> bool:
    whole = row[1] == 0 and item.shape == want.shape
    return whole and item.bytes == encoded_size(item.format, item.layout, item.shape)
