"""Print how fast whole conversions run, on a made-up checkpoint with the shapes of the 27B models.

    python scripts/measure_conversion.py --folder /dev/shm --layers 4 --vocab 50000 --threads 2
    python scripts/measure_conversion.py --folder /dev/shm --layers 8 --device cuda --compare-cpu

Each conversion is a process of its own, `ninfer convert SOURCE --out FILE`. `process s` and `MB/s`
of bfloat16 weights are from its start to its end, imports included; `s` is what it says itself:
plan, reading, hashing, encoding, error figures, writing and publication. `plain` is a torch
bfloat16 -> float32 -> bfloat16 pass on the CPU over the same weights, 64 MiB at a time into buffers
that exist already, right before and after every conversion. `share` is the plain pass's time as a
share of `s`, `cpu share` its processor seconds as a share of those of the whole process, which
says more on a busy machine. `--threads N` keeps both to N cores where conversion is on the CPU.
`peak` is the largest anonymous resident memory that was seen, looked at 50 times a second. In
memory-backed storage (/dev/shm) no disk is measured. `--compare-cpu` converts on the CPU too;
unequal SHA-256 is exit code 1. Figures: docs/conversion-speed.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ninfer_tools.synthetic.checkpoint import write_checkpoint
from ninfer_tools.synthetic.specification import parse_spec

ROOT = Path(__file__).parents[1]
CHUNK_VALUES = 1 << 25
SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Measured:
    """One conversion. Seconds and shares of the plain pass over the same weights."""

    profile: str
    device: str
    seconds: float
    process_seconds: float
    cpu_seconds: float
    mb_per_second: float
    plain_gb_per_second: float
    share: float
    cpu_share: float
    peak_anonymous_bytes: int
    output_bytes: int
    sha256: str


class PlainPass:
    """bfloat16 -> float32 -> bfloat16 over every byte of the weight files."""

    def __init__(self, files: list[Path]) -> None:
        # Copy on write, and nothing is written: torch warns of memory that it must not change.
        self._maps = [np.memmap(path, np.uint16, "c", 0, _even(path)) for path in files]
        self._wide = torch.zeros(CHUNK_VALUES)
        self._narrow = torch.zeros(CHUNK_VALUES, dtype=torch.bfloat16)
        self.bytes = sum(mapped.nbytes for mapped in self._maps)
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self._run()

    def measure(self) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        self._run()
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(time.process_time() - cpu)

    def _run(self) -> None:
        for mapped in self._maps:
            for begin in range(0, len(mapped), CHUNK_VALUES):
                words = mapped[begin : begin + CHUNK_VALUES]
                values = torch.from_numpy(words).view(torch.bfloat16)
                wide = self._wide[: len(words)].copy_(values)
                self._narrow[: len(words)].copy_(wide)


def _even(path: Path) -> tuple[int]:
    return (path.stat().st_size // 2,)


class MemoryWatch(threading.Thread):
    """Looks at the anonymous resident memory of a process until it ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._process, self.peak = process, 0
        self.start()

    def run(self) -> None:
        while self._process.returncode is None:
            try:
                status = Path(f"/proc/{self._process.pid}/status").read_text()
            except OSError:
                return
            found = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
            self.peak = max(self.peak, *(1024 * int(size) for size in found), 0)
            time.sleep(SAMPLE_SECONDS)


def convert(source: Path, out: Path, profile: str, device: str, threads: int | None) -> MemoryWatch:
    """Run `ninfer convert` in a process of its own."""
    environment = dict(os.environ)
    paths = [str(ROOT), str(ROOT / "formats"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-m", "ninfer_tools", "convert", str(source), "--out", str(out)]
    options = ["--profile", profile, "--device", device, "--json"]
    process = subprocess.Popen(
        [*command, *options], env=environment, stdout=subprocess.DEVNULL, text=True
    )
    watch = MemoryWatch(process)
    if process.wait():
        sys.exit(f"conversion failed with exit code {process.returncode}")
    watch.join()
    return watch


def measure(
    source: Path, plain: PlainPass, profile: str, device: str, threads: int | None
) -> Measured:
    out = source.parent / f"{profile}-{device}" / "model.ninfer"
    out.parent.mkdir()
    done = len(plain.seconds)
    cores = os.sched_getaffinity(0)
    if threads is not None and device == "cpu":
        os.sched_setaffinity(0, sorted(cores)[:threads])
    plain.measure()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    watch = convert(source, out, profile, device, threads)
    whole = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    plain.measure()
    os.sched_setaffinity(0, cores)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    usual = statistics.mean(plain.seconds[done:])
    usual_cpu = statistics.mean(plain.cpu_seconds[done:])
    size, digest = out.stat().st_size, hash_file(out)
    report = out.with_name(f"{out.name}.conversion.json").read_text(encoding="utf-8")
    seconds = json.loads(report)["seconds"]
    shutil.rmtree(out.parent)
    return Measured(
        profile, device, seconds, round(whole, 2), round(cpu, 2),
        round(plain.bytes / whole / 1e6, 1),
        round(plain.bytes / usual / 1e9, 3), round(usual / seconds, 4), round(usual_cpu / cpu, 4),
        watch.peak, size, digest,
    )  # fmt: skip


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def print_table(found: list[Measured]) -> None:
    print(
        f"{'profile':<15}{'device':<8}{'s':>7}{'process s':>11}{'cpu s':>8}{'MB/s':>8}"
        f"{'plain GB/s':>12}{'share':>8}{'cpu share':>11}{'peak GiB':>10}  sha256"
    )
    for item in found:
        print(
            f"{item.profile:<15}{item.device:<8}{item.seconds:>7.1f}{item.process_seconds:>11.1f}"
            f"{item.cpu_seconds:>8.1f}{item.mb_per_second:>8.0f}"
            f"{item.plain_gb_per_second:>12.2f}{item.share:>8.3f}"
            f"{item.cpu_share:>11.3f}{item.peak_anonymous_bytes / 2**30:>10.2f}"
            f"  {item.sha256[:16]}"
        )


def find_unequal(found: list[Measured]) -> list[str]:
    """Return the profiles whose conversions did not give one file."""
    digests: dict[str, set[str]] = {}
    for item in found:
        digests.setdefault(item.profile, set()).add(item.sha256)
    return [profile for profile, seen in digests.items() if len(seen) > 1]


def describe_machine(options: argparse.Namespace, weights: int) -> dict[str, Any]:
    cuda = options.device.startswith("cuda")
    return {
        "spec": options.spec,
        "weight_bytes": weights,
        "folder": str(options.folder),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "threads": options.threads or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "load": os.getloadavg()[0],
    }


def run(options: argparse.Namespace, folder: Path) -> list[Measured]:
    source = folder / "source"
    start = time.perf_counter()
    write_checkpoint(parse_spec(options.spec), source, device=options.draw_on)
    plain = PlainPass(sorted(source.glob("*.safetensors")))
    options.machine = describe_machine(options, plain.bytes)
    print(f"made {plain.bytes / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s", flush=True)
    devices = [options.device, *(["cpu"] if options.compare_cpu else [])]
    found: list[Measured] = []
    for device in devices:
        for profile in options.profiles.split(","):
            for _ in range(options.repeats):
                found.append(measure(source, plain, profile, device, options.threads))
                print_table(found[-1:])
                sys.stdout.flush()
    return found


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--layers", type=int, default=4, help="text layers, a multiple of 4")
    parser.add_argument("--vocab", type=int, help="token ids; the real 248,077 by default")
    parser.add_argument("--components", default="text+mtp", help="joined by +")
    parser.add_argument("--profiles", default="groupwise-int,nvfp4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compare-cpu", action="store_true")
    parser.add_argument("--threads", type=int, help="torch threads; one per core by default")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--draw-on", default="cpu", help="device that draws the weights")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    vocabulary = "" if options.vocab is None else f":vocab={options.vocab}"
    options.spec = (
        f"qwen3.8-27b:bf16:layers={options.layers}:components={options.components}{vocabulary}"
    )
    return options


def main() -> None:
    options = parse_options()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = run(options, Path(folder))
    unequal = find_unequal(found)
    record = {**options.machine, "runs": [asdict(item) for item in found], "unequal": unequal}
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(options.machine))
    print_table(found)
    if unequal:
        sys.exit(f"devices or repeats give different files: {', '.join(unequal)}")


if __name__ == "__main__":
    main()
