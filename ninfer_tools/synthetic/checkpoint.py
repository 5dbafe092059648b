"""Write a synthetic checkpoint folder: config, sharded safetensors, tokenizer files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.profiles import build_profile
from ninfer_tools.synthetic import checkpoint_configs as configs
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor
from ninfer_tools.synthetic.checkpoint_tensors import (
    expand_experts,
    list_checkpoint_tensors,
    stored_format,
)
from ninfer_tools.synthetic.drafter_tensors import list_drafter_tensors
from ninfer_tools.synthetic.folder_output import check_output, publish_folder
from ninfer_tools.synthetic.frontend import build_frontend
from ninfer_tools.synthetic.payloads import open_worker
from ninfer_tools.synthetic.safetensors_file import (
    Entry,
    file_bytes,
    plan_shards,
    write_safetensors,
)
from ninfer_tools.synthetic.specification import SyntheticSpec
from ninfer_tools.synthetic.stored_tensors import TensorStore

MAX_SHARD_BYTES = 5 * 10**9
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class CheckpointPlan:
    """Everything a checkpoint folder will hold: small files, and safetensors by relative path."""

    texts: dict[str, bytes]
    shards: dict[str, list[Entry]]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.texts.values())) + sum(map(file_bytes, self.shards.values()))


def write_checkpoint(
    spec: SyntheticSpec,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the checkpoint of a specification to `folder` and return its size in bytes.

    Weights are bf16 (A_log and linear_attn.norm float32) under the official names. Profiles
    `nvfp4`, `nvfp4-official` and `fp8` store the projections those profiles quantise in the
    compressed-tensors form, experts one by one; `bf16` and `groupwise-int` store plain bf16,
    because grouped integers are made at conversion. A drafter is a checkpoint of its own in the
    subfolder `dflash` or `dflash2`. The proposal head is no part of a checkpoint.

    Writes under a hidden name beside `folder` and renames at the end; `progress(done, total)`
    is told bytes. Raises UsageError, with nothing written, when `folder` exists (with `force`:
    when it is no checkpoint), when the parent cannot be written, or when the disk has no room.
    """
    target = Path(folder)
    check_output(target, force)
    plan = plan_checkpoint(spec, device, threads)
    total = plan.bytes
    with publish_folder(target, total, force) as new:
        _write_plan(plan, new, total, progress or (lambda done, total: None))
    return total


def plan_checkpoint(
    spec: SyntheticSpec, device: str = "cpu", threads: int | None = None
) -> CheckpointPlan:
    """Return what `write_checkpoint` writes, the weights not drawn yet."""
    geometry = spec.geometry()
    store = TensorStore(spec.seed, open_worker(device, threads))
    tensors = _choose_formats(spec, geometry)
    entries = [entry for tensor, format in tensors for entry in store.entries(tensor, format)]
    shards = plan_shards(entries, MAX_SHARD_BYTES)
    named = {
        f"model-{i:05d}-of-{len(shards):05d}.safetensors": shard
        for i, shard in enumerate(shards, 1)
    }
    config = configs.describe_checkpoint(geometry, spec.vocabulary)
    if quantisation := configs.describe_quantisation(tensors):
        config["quantization_config"] = quantisation
    texts = {"config.json": _to_json(config), INDEX: _to_json(_describe_index(named))}
    texts |= build_frontend(spec.vocab, spec.seed)
    return _add_drafter(CheckpointPlan(texts, named), geometry, store)


def _choose_formats(
    spec: SyntheticSpec, geometry: ModelGeometry
) -> list[tuple[CheckpointTensor, str]]:
    profile = build_profile(spec.profile, geometry, spec.model)
    chosen = []
    for tensor in list_checkpoint_tensors(geometry):
        format = stored_format(tensor, profile)
        # Stacked experts exist only unquantised.
        split = tensor.expert and format != tensor.format
        chosen += [(t, format) for t in (expand_experts(tensor) if split else [tensor])]
    return chosen


def _add_drafter(
    plan: CheckpointPlan, geometry: ModelGeometry, store: TensorStore
) -> CheckpointPlan:
    drafter = geometry.drafter
    if drafter is None:
        return plan
    entries = [
        entry
        for tensor in list_drafter_tensors(drafter, geometry.text)
        for entry in store.entries(tensor, tensor.format)
    ]
    # One file, as drafters are published.
    shards = {f"{drafter.kind}/model.safetensors": plan_shards(entries, 2**63)[0]}
    texts = {f"{drafter.kind}/config.json": _to_json(configs.describe_drafter(geometry, drafter))}
    return CheckpointPlan(plan.texts | texts, plan.shards | shards)


def _describe_index(shards: dict[str, list[Entry]]) -> dict[str, object]:
    size = sum(entry.bytes for shard in shards.values() for entry in shard)
    names = {entry.name: file for file, shard in shards.items() for entry in shard}
    return {"metadata": {"total_size": size}, "weight_map": dict(sorted(names.items()))}


def _write_plan(
    plan: CheckpointPlan, folder: Path, total: int, progress: Callable[[int, int], None]
) -> None:
    done = 0
    for name, entries in plan.shards.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        for count in write_safetensors(path, entries):
            done += count
            progress(done, total)
    for name, text in plan.texts.items():
        with (folder / name).open("wb") as file:
            done += file.write(text)
            file.flush()
            os.fsync(file.fileno())
    progress(done, total)


def _to_json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
