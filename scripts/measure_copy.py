"""Compare `copy_range` with `cp` on one disk: interleaved repeats, median of each.

    python scripts/measure_copy.py --folder /models --mib 2048

The ratio is our bytes per second over those of `cp`; above 1.00 is faster than `cp`. `--cold`
drops the source from the page cache before each copy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ninfer_formats import copying

_MIB = 1 << 20


def copy_with_cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", str(source), str(target)], check=True)


def copy_in_kernel(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        size = source.stat().st_size
        copying.copy_range(reader.fileno(), 0, writer.fileno(), 0, size)


def copy_through_buffer(source: Path, target: Path) -> None:
    buffer = memoryview(bytearray(copying.BUFFER_BYTES))
    with source.open("rb") as reader, target.open("wb") as writer:
        done, size = 0, source.stat().st_size
        while done < size:
            view = buffer[: size - done]
            done += copying._copy_through(view, reader.fileno(), done, writer.fileno(), done)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "cp": copy_with_cp,
    "copy_range": copy_in_kernel,
    "fallback": copy_through_buffer,
}


def seconds_of(way: str, source: Path, target: Path, durable: bool, cold: bool) -> float:
    target.unlink(missing_ok=True)
    os.sync()
    if cold:
        with source.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()
    WAYS[way](source, target)
    if durable:
        with target.open("rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - begin


def measure(folder: Path, mib: int, repeats: int, durable: bool, cold: bool) -> None:
    source, target = folder / "source", folder / "target"
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    ways = list(WAYS)
    for _ in range(repeats):
        # Disks that slow down after a burst must not punish whoever comes last.
        ways.append(ways.pop(0))
        for way in ways:
            seconds[way].append(seconds_of(way, source, target, durable, cold))
    base = statistics.median(seconds["cp"])
    for way, taken in seconds.items():
        median = statistics.median(taken)
        print(
            f"{'fsync' if durable else 'no fsync':9} {'cold' if cold else 'warm':5} {way:11}"
            f"{mib / median:9.0f} MiB/s  ratio {base / median:5.2f}"
            f"  (from {min(taken):.2f} to {max(taken):.2f} s, {repeats} repeats)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder on the disk to test")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        block = os.urandom(_MIB)
        with (Path(folder) / "source").open("wb") as file:
            for _ in range(args.mib):
                file.write(block)
        for durable in (False, True):
            measure(Path(folder), args.mib, args.repeats, durable, args.cold)


if __name__ == "__main__":
    main()
