"""Time opening full-size directories against plain JSON parsing of the same bytes.

    python scripts/measure_open.py [--repeats 9]

Per file: median seconds of `json.loads` and of `open_artifact`, their ratio (bound: 4), and the
peak memory that opening adds to an interpreter with the reader loaded (bound: 200 MB). The files
are sparse: full directories, no payload.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ninfer_formats.reader import open_artifact
from ninfer_tools.console import format_table
from ninfer_tools.synthetic.artifact_plan import plan_artifact
from ninfer_tools.synthetic.specification import parse_spec

FILES = {
    "27B version 3": ("qwen3.8-27b:groupwise-int:dflash2=1", 3),
    "35B-A3B version 3": ("qwen3.6-35b-a3b:groupwise-int:dflash=1", 3),
    "27B version 2": ("qwen3.8-27b:groupwise-int:dflash2=1", 2),
    "35B-A3B version 2": ("qwen3.6-35b-a3b:groupwise-int:dflash=1", 2),
}


def save_directory(path: Path, spec: str, container: int) -> None:
    """Write the headers of an artifact; its payload is a hole."""
    (file,) = plan_artifact(parse_spec(spec), path.name, container, 2**62).written.files
    with path.open("wb") as out:
        out.write(file.header)
        out.truncate(file.bytes)


def time_calls(call: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def read_json(path: Path) -> bytes:
    data = path.open("rb").read(64 << 20)
    offset = 32 if data[7] == 3 else 16
    return data[offset : offset + int.from_bytes(data[8:16], "little")]


def peak_mib() -> float:
    # ru_maxrss would carry over the parent's peak; this one starts with the process.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def measure(path: Path, repeats: int) -> dict[str, float]:
    """Return the figures of one file; runs in a process of its own because of the peak."""
    before = peak_mib()
    artifact = open_artifact(path)
    figures = {"mib": peak_mib() - before, "objects": len(artifact.objects)}
    del artifact
    raw = read_json(path)
    figures["plain"] = time_calls(lambda: json.loads(raw), repeats)
    figures["open"] = time_calls(lambda: open_artifact(path), repeats)
    figures["bindings"] = len(open_artifact(path).bindings)
    figures["json"] = len(raw)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        print(json.dumps(measure(options.file, options.repeats)))
        return
    rows: list[tuple[object, ...]] = [
        ("file", "objects", "bindings", "JSON bytes", "json.loads", "open", "ratio", "added MiB")
    ]
    with tempfile.TemporaryDirectory() as folder:
        for title, (spec, container) in FILES.items():
            path = Path(folder) / "x.ninfer"
            save_directory(path, spec, container)
            command = [sys.executable, __file__, "--file", str(path)]
            command += ["--repeats", str(options.repeats)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            got = json.loads(done.stdout)
            times = [f"{got[name] * 1000:.1f} ms" for name in ("plain", "open")]
            ratio = f"{got['open'] / got['plain']:.2f}"
            sizes = (int(got["objects"]), int(got["bindings"]), int(got["json"]))
            rows.append((title, *sizes, *times, ratio, f"{got['mib']:.0f}"))
    print(format_table(rows, indent=""))


if __name__ == "__main__":
    main()
