"""Feed mutated artifacts to the reader: a documented error or a usable artifact, nothing else.

Run as a program: `python tests/formats/fuzz_reader.py --cases 20000 --seed 1`. It prints one JSON
line with the outcome counts, the seconds, and the peak memory, and exits 1 on the first finding.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.artifact_bytes import (
    compact,
    entry_bytes,
    legacy_bytes,
    small_legacy_payload,
    small_legacy_root,
    small_payload,
    small_root,
)
from ninfer_formats.errors import NinferError
from ninfer_formats.reader import open_artifact

HOSTILE = [
    None,
    True,
    False,
    0,
    -1,
    1,
    255,
    256,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**100,
    0.5,
    1e308,
    "",
    "\0",
    "a" * 5000,
    "../x",
    "text",
    "weight/000000",
    "nvfp4",
    "fp8_e4m3fn_row_bf16",
    "q8_g32_fp16",
    "int32",
    "bf16",
    "contiguous_le_v1",
    "row_scale_v1",
    "block_scale_k16_m128x4_v1",
    "resource",
    "tensor",
    "\u202e\x1b[31m",
    [],
    {},
    [0],
    [[]],
    [1] * 17,
    [2**40, 2**40],
    {"a": 1},
    {"object": "weight/000000"},
    {"parts": []},
]
TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"null", b"1e999", b"NaN", b"-", b"\\u0000"]
TOKENS += [b"\\ud800", b"\xff", b"\0", b"\xef\xbb\xbf", b"9" * 4400, b"[" * 2000, b" ", b"0"]


def nodes(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the path of every node of a JSON value."""
    found = [path]
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            found += nodes(child, (*path, key))
    return found


def mutate_tree(root: Any, rng: random.Random) -> Any:
    """Replace, drop, copy or rename one node."""
    root = copy.deepcopy(root)
    path = rng.choice(nodes(root)[1:] or [()])
    if not path:
        return root
    parent = root
    for key in path[:-1]:
        parent = parent[key]
    action = rng.randrange(5)
    if action == 0:
        del parent[path[-1]]
    elif action == 1 and isinstance(parent, dict):
        parent[rng.choice(["x", "", "id", "name", "divisors", "parts", "\0"])] = parent[path[-1]]
    elif action == 2 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))
    elif action == 3 and type(parent[path[-1]]) is int:
        parent[path[-1]] += rng.choice([-256, -4, -1, 1, 2, 255, 256, 4096])
    else:
        parent[path[-1]] = copy.deepcopy(rng.choice(HOSTILE))
    return root


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or insert at one place."""
    at = rng.randrange(len(data) + 1)
    action = rng.randrange(5)
    if action == 0:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    if action == 1:
        return data[:at] + data[at + rng.randrange(1, 64) :]
    if action == 2:
        return data[:at] + data[at : at + rng.randrange(1, 200)] * 2 + data[at:]
    if action == 3:
        return data[:at] + rng.choice(TOKENS) + data[at:]
    return (
        data[:at] + bytes(a ^ (1 << rng.randrange(8)) for a in data[at : at + 4]) + data[at + 4 :]
    )


def make_case(rng: random.Random) -> bytes:
    """Return the bytes of one mutated artifact."""
    version = rng.choice([1, 2, 3, 3, 3])
    root = small_root() if version == 3 else small_legacy_root(version)
    payload = small_payload() if version == 3 else small_legacy_payload()
    frame = entry_bytes if version == 3 else lambda *args: legacy_bytes(version, *args)
    kind = rng.randrange(8)
    if kind <= 3:
        for _ in range(rng.choice([1, 1, 2, 4])):
            root = mutate_tree(root, rng)
        return frame(compact(root), payload)
    if kind <= 5:
        text = compact(root)
        for _ in range(rng.choice([1, 1, 3])):
            text = mutate_bytes(text, rng)
        return frame(text, payload)
    data = frame(root, payload)
    if kind == 6:
        return data[: rng.choice([rng.randrange(64), rng.randrange(len(data))])]
    head = mutate_bytes(data[:40], rng)
    return head + data[40:]


def exercise(path: Path) -> str:
    """Open and use everything; return the outcome. Anything but a NinferError escapes."""
    try:
        artifact = open_artifact(path)
    except NinferError as error:
        check_message(error)
        return f"refused {type(error).__name__}"
    problems = {str(problem) for problem in artifact.find_problems()}
    reads = [lambda name=name: artifact.payload_of(name) for name in artifact.objects]
    reads += [lambda name=name: artifact.parameter(name).decode() for name in artifact.bindings]
    reads += [lambda name=name: artifact.parameter(name).views() for name in artifact.bindings]
    reads += [lambda role=role: artifact.resource(*role[::-1]) for role in artifact.resources]
    for read in reads:
        try:
            read()
        except NinferError as error:
            check_message(error)
            problems.add(str(error))
    _ = (artifact.uses, artifact.components, artifact.identity, artifact.metadata)
    return "opened with problems" if problems else "opened"


def check_message(error: NinferError) -> None:
    text = str(error)
    if not text or not text.isprintable() or len(text) > 20_000:
        raise AssertionError(f"message is not one plain line: {text!r}")


def _give_up(*_: object) -> None:
    raise TimeoutError("one case took more than ten seconds of processor time")


def measure_peak_mib() -> int:
    # Not ru_maxrss: a program inherits that peak from the process that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def run(cases: int, seed: int, folder: Path) -> dict[str, Any]:
    """Run the cases; return the summary."""
    signal.signal(signal.SIGPROF, _give_up)
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    began = time.perf_counter()
    path = folder / "case.ninfer"
    for number in range(cases):
        data = make_case(rng)
        path.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, 10)
        try:
            outcomes[exercise(path)] += 1
        except BaseException as error:
            Path("fuzz_finding.bin").write_bytes(data)
            print(f"case {number}: {type(error).__name__}: {error} (see fuzz_finding.bin)")
            raise
    return {
        "cases": cases,
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mib": measure_peak_mib(),
        "outcomes": dict(sorted(outcomes.items())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(args.cases, args.seed, Path(folder))))


if __name__ == "__main__":
    main()
