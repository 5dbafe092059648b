"""Pack the trained checkpoint and its drafter into the package data of ninfer_tools.

    python scripts/demo/pack_checkpoint.py CHECKPOINT_FOLDER DFLASH2_FOLDER OUT_FOLDER \\
        --metrics metrics.json metrics_dflash2.json

Every file becomes NAME.zst; manifest.json holds the sizes and hashes of both forms, metrics.json
what training measured, without its curves and sample replies. The same inputs and the same
zstandard version give the same bytes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from record_text import to_text

from ninfer_tools.demo.manifest import DemoFile
from ninfer_tools.demo.packing import pack

METRICS = (
    "steps",
    "tokens",
    "anchors",
    "train_seconds",
    "parameters",
    "seed",
    "torch",
    "tokenizer_size",
    "vocab_size",
    "mask_token_id",
    "window",
    "taps",
)


def pack_file(source: Path, name: str, out: Path) -> DemoFile:
    content = source.read_bytes()
    packed = pack(content)
    target = out / f"{name}.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packed)
    return DemoFile(
        name,
        len(content),
        hashlib.sha256(content).hexdigest(),
        len(packed),
        hashlib.sha256(packed).hexdigest(),
    )


def pack_folders(folders: dict[str, Path], out: Path) -> list[DemoFile]:
    return [
        pack_file(path, f"{part}/{path.name}", out)
        for part, folder in folders.items()
        for path in sorted(folder.iterdir())
    ]


def trim_metrics(path: Path) -> dict[str, Any]:
    record = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: record[name] for name in METRICS if name in record}
    if "evaluation" in record:
        dropped = ("samples", "vision_samples", "eval_seconds")
        kept["evaluation"] = {k: v for k, v in record["evaluation"].items() if k not in dropped}
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("dflash2", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--metrics", type=Path, nargs=2, required=True)
    options = parser.parse_args()
    folders = {"checkpoint": options.checkpoint, "dflash2": options.dflash2}
    files = pack_folders(folders, options.out)
    record = {"files": [dataclasses.asdict(file) for file in files]}
    (options.out / "manifest.json").write_text(to_text(record), encoding="utf-8")
    metrics = dict(zip(folders, map(trim_metrics, options.metrics), strict=True))
    (options.out / "metrics.json").write_text(to_text(metrics), encoding="utf-8")
    print(f"{sum(f.bytes for f in files):,} bytes -> {sum(f.packed_bytes for f in files):,}")


if __name__ == "__main__":
    main()
