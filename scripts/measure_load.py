"""Time loading a 17 GB synthetic artifact against a plain sequential read of the same file.

    python scripts/measure_load.py FOLDER [--device cuda] [--keep]

Writes FOLDER/load.ninfer (once), then loads it warm (the file in the page cache; bound on an H200:
8 s) and cold (dropped from the cache; bound: 85 % of the plain read's speed), and prints what
opening, reading, uploading and preparing took.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch

from ninfer_formats.reader import open_artifact
from ninfer_runtime.config import EngineConfig, resolve
from ninfer_runtime.models.qwen3_5.model import load_model, read_geometry
from ninfer_runtime.weights.load_record import LoadRecord
from ninfer_tools.console import format_table
from ninfer_tools.synthetic.artifact import write_synthetic
from ninfer_tools.synthetic.specification import parse_spec

SPEC = "qwen3.8-27b:groupwise-int"
PIECE = 16 << 20


def drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def read_plainly(path: Path) -> float:
    """Return the seconds of reading a file from begin to end."""
    buffer = bytearray(PIECE)
    begin = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - begin


def load(path: Path, device: str) -> LoadRecord:
    artifact = open_artifact(path)
    geometry = read_geometry(artifact)
    config = EngineConfig(device=device, speculator="mtp", vision=True)
    settings = resolve(config, geometry, has_proposal=True)
    _, record = load_model(artifact, geometry, settings, lambda count: None)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--spec", default=SPEC)
    parser.add_argument("--keep", action="store_true", help="leave the file there")
    options = parser.parse_args()
    path = options.folder / "load.ninfer"
    if not path.exists():
        write_synthetic(parse_spec(options.spec), path, device=options.device)
    size = path.stat().st_size
    drop_from_cache(path)
    plain = read_plainly(path)
    print(f"{size / 1e9:.2f} GB; plain sequential read {size / plain / 1e9:.2f} GB/s")
    if options.device != "cpu":
        torch.zeros(1, device=options.device)  # the first touch of a GPU takes a second
    warm = load(path, options.device)
    drop_from_cache(path)
    cold = load(path, options.device)
    rows = [
        (name, f"{r.seconds:.2f} s", str(r), f"{r.bytes / r.seconds / (size / plain):.0%}")
        for name, r in (("warm", warm), ("cold", cold))
    ]
    print(format_table([("load", "wall", "parts", "of the plain read"), *rows]))
    if not options.keep:
        path.unlink()


if __name__ == "__main__":
    main()
