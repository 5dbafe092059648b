"""The weight files of a checkpoint: one file, or shards and their index (rules S-20 to S-26)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ninfer_formats.errors import NinferError
from ninfer_tools.convert.sources.files import CheckpointFiles
from ninfer_tools.convert.sources.json_text import read_json_object
from ninfer_tools.convert.sources.name_lists import name_some
from ninfer_tools.convert.sources.safetensors_file import StoredTensor, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 200_000_000

Owners = defaultdict[str, list[str]]


@dataclass
class WeightFiles:
    """Every tensor by name, the files they lie in, and what was wrong or odd.

    `unreadable` are tensors that the index names and no readable file holds.
    """

    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    problems: list[NinferError] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)


def read_weight_files(files: CheckpointFiles) -> WeightFiles:
    """Read the headers of all weight files and hold them against the index."""
    found = WeightFiles()
    names = files.names()
    if INDEX not in names:
        if SINGLE in names:
            _read_files(files, [SINGLE], found)
        else:
            found.problems.append(_no_weights(files))
        return found
    try:
        weight_map = _read_index(files)
    except NinferError as error:
        found.problems.append(error)
        return found
    shards = sorted(set(weight_map.values()))
    if SINGLE in names and SINGLE not in shards:
        found.problems.append(_two_sets(files))
        return found
    owners = _read_files(files, shards, found)
    _compare(files, weight_map, owners, found)
    unused = sorted(n for n in names if n.endswith(".safetensors") and n not in shards)
    if unused:
        found.notices.append(f"files that the index does not name: {name_some(unused)}")
    return found


def _no_weights(files: CheckpointFiles) -> NinferError:
    names = sorted(files.names())
    remedy = None
    if "adapter_model.safetensors" in names:
        remedy = "this is an adapter: merge it into its base model first"
    elif any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        remedy = "save the checkpoint as safetensors first"
    weights = [n for n in names if n.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf"))]
    return NinferError(
        "no weights", path=files.label, got=name_some(weights) or "no weight file",
        want=f"{SINGLE}, or {INDEX} and its shards", remedy=remedy,
    )  # fmt: skip


def _two_sets(files: CheckpointFiles) -> NinferError:
    return NinferError(
        f"both {SINGLE} and {INDEX}, which does not name it", path=files.label,
        remedy="move the stale one out of the folder",
    )  # fmt: skip


def _read_index(files: CheckpointFiles) -> dict[str, str]:
    path = files.path(INDEX)
    if files.size(INDEX) > MAX_INDEX_BYTES:
        raise NinferError("index is too large", path=path, got=f"{files.size(INDEX)} bytes")
    index = read_json_object(files.read(INDEX, 0, MAX_INDEX_BYTES), "index", path)
    weight_map = index.get("weight_map")
    strings = isinstance(weight_map, dict) and all(type(v) is str for v in weight_map.values())
    if not weight_map or not strings:
        raise NinferError("index has no weight_map of file names", path=path)
    return weight_map


def _read_files(files: CheckpointFiles, shards: Iterable[str], found: WeightFiles) -> Owners:
    """Read the headers of `shards` into `found`; return the files of every tensor."""
    owners: Owners = defaultdict(list)
    read = []
    for shard in shards:
        try:
            if shard not in files.names():
                # A name with a folder in it is never looked for.
                raise NinferError(
                    "the index names a file that is absent", path=files.label, got=shard,
                    remedy="download it",
                )  # fmt: skip
            tensors = read_header(files, shard)
        except NinferError as error:
            found.problems.append(error)
            continue
        read.append(shard)
        for tensor in tensors:
            owners[tensor.name].append(shard)
            found.tensors.setdefault(tensor.name, tensor)
    found.files = tuple(read)
    twice = [f"{name} in {' and '.join(where)}" for name, where in owners.items() if len(where) > 1]
    if twice:
        what = f"tensors lie in two files: {name_some(twice)}"
        found.problems.append(NinferError(what, path=files.label))
    return owners


def _compare(
    files: CheckpointFiles, weight_map: Mapping[str, str], owners: Owners, found: WeightFiles
) -> None:
    missing, misplaced = [], []
    found.unreadable = weight_map.keys() - owners.keys()
    for name, shard in weight_map.items():
        if shard not in found.files:
            continue
        if name not in owners:
            missing.append(f"{name} ({shard})")
        elif shard not in owners[name]:
            misplaced.append(f"{name} in {owners[name][0]} (not {shard})")
    for what, names in (
        ("the index names tensors that no file holds", missing),
        ("tensors lie in another file than the index says", misplaced),
    ):
        if names:
            text = f"{what}: {name_some(names)}"
            found.problems.append(NinferError(text, path=files.path(INDEX)))
    unlisted = sorted(owners.keys() - weight_map.keys())
    if unlisted:
        found.notices.append(f"tensors that the index does not name: {name_some(unlisted)}")
