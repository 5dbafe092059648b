"""Synthetic artifacts: written to a file, or opened without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.container import read_prefix
from ninfer_formats.directory import FileEntry, Resource
from ninfer_formats.directory_legacy import read_directory_legacy
from ninfer_formats.directory_v3 import read_directory_v3
from ninfer_formats.layouts.geometry import MAX_OFFSET
from ninfer_formats.reader import Artifact, list_parts
from ninfer_formats.strict_json import parse_json
from ninfer_formats.write_plan import DEFAULT_MAX_FILE_BYTES
from ninfer_formats.writer import write_artifact
from ninfer_tools.synthetic.artifact_plan import SyntheticPlan, plan_artifact
from ninfer_tools.synthetic.block_workers import count_threads, map_ahead
from ninfer_tools.synthetic.generated_payload import GeneratedPayload
from ninfer_tools.synthetic.payloads import BlockWorker, open_worker, stream_fills
from ninfer_tools.synthetic.plane_fills import plan_fills
from ninfer_tools.synthetic.specification import SyntheticSpec, parse_spec
from ninfer_tools.synthetic.tensor_blocks import Block

# (object id, offset in the object, bytes)
Piece = tuple[str, int, np.ndarray]


def write_synthetic(
    spec: SyntheticSpec,
    out: str | os.PathLike[str],
    *,
    container: int = 3,
    device: str = "cpu",
    force: bool = False,
    threads: int | None = None,
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    artifact_id: bytes | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the artifact of a specification and return the bytes of all its files.

    The bytes depend on the specification, `container`, `max_file_bytes`, the kind of `device`
    and `artifact_id` only, never on `threads` (default: one per processor up to eight). At most
    threads + 2 blocks of about 4 MiB are in memory. `progress(done, total)` is told payload
    bytes. Errors as `plan_artifact` and `writer.write_artifact`; nothing half-written has a
    final name.
    """
    path = Path(out)
    worker = None if device == "cpu" else open_worker(device)
    plan = plan_artifact(spec, path.name, container, max_file_bytes, artifact_id, device)
    pieces = _draw_on_cpu(plan, threads) if worker is None else _draw_on_device(plan, worker)
    replaces = list_parts(path) if force else ()
    done, total = 0, sum(item.bytes for item in plan.written.objects.values())
    with write_artifact(plan.written, path, force=force, replaces=replaces) as writer:
        for object_id, offset, data in pieces:
            writer.write(object_id, data, offset)
            done += data.size
            if progress is not None:
                progress(done, total)
    return plan.written.bytes


def open_synthetic(text: str, container: int = 3, threads: int | None = None) -> Artifact:
    """Return the artifact that a specification describes, without writing it.

    Its path is the specification. Directory and payload equal those of the file that
    `write_synthetic` makes on the CPU when it is not split; payload bytes are drawn when read.
    Errors as `parse_spec` and `plan_artifact`.
    """
    path = Path(text)
    plan = plan_artifact(parse_spec(text), path.name, container, MAX_OFFSET)
    (file,) = plan.written.files
    prefix = read_prefix(file.header[:64], file.bytes, path)
    root = parse_json(file.header[prefix.json_offset : prefix.json_offset + prefix.json_bytes])
    payload = GeneratedPayload(plan, path, threads)
    files = (FileEntry(None, file.payload_bytes),)
    directory = (
        read_directory_v3(root, path.name)
        if prefix.version == 3
        else read_directory_legacy(root, prefix.version)
    )
    return Artifact(path, prefix, directory, payload, files, file.bytes)


def _draw_on_cpu(plan: SyntheticPlan, threads: int | None) -> Iterator[Piece]:
    """Yield every byte of the payload in file order, drawn ahead of the writing."""

    def draw(job: tuple[str, Block]) -> Piece:
        object_id, block = job
        return object_id, block.offset, block.draw()

    jobs = ((name, block) for name in plan.written.objects for block in plan.blocks(name))
    return map_ahead(draw, jobs, count_threads(threads))


def _draw_on_device(plan: SyntheticPlan, worker: BlockWorker) -> Iterator[Piece]:
    """Yield the same from a device, which works ahead by itself."""
    for name, item in plan.written.objects.items():
        if isinstance(item, Resource) or item.format == nf.INT32:
            for block in plan.blocks(name):
                yield name, block.offset, block.draw()
            continue
        fills = plan_fills(item.format, item.layout, item.shape, plan.parameters[name])
        for offset, data in stream_fills(fills, plan.seed_key(name), worker):
            yield name, offset, data
