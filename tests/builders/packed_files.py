"""A small set of packed files in the layout of the bundled demo checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from ninfer_tools.demo.manifest import DemoFile, Manifest
from ninfer_tools.demo.packing import pack

CONTENTS = {
    "checkpoint/config.json": b'{"hidden_size": 256}\n',
    "checkpoint/model.safetensors": bytes(range(256)) * 40,
    "dflash2/model.safetensors": b"\x00\x7f" * 3000,
}


def save_packed(folder: Path, contents: dict[str, bytes] = CONTENTS) -> Manifest:
    files = []
    for name, content in contents.items():
        packed = pack(content)
        path = folder / f"{name}.zst"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packed)
        digests = [hashlib.sha256(data).hexdigest() for data in (content, packed)]
        files.append(DemoFile(name, len(content), digests[0], len(packed), digests[1]))
    record = {"files": [dataclasses.asdict(file) for file in files]}
    (folder / "manifest.json").write_text(json.dumps(record))
    return Manifest(tuple(files), folder)


def read_tree(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
