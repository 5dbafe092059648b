"""Print how fast the torch encoders run on matrices of the 27B models, and check their bytes.

Usage: python scripts/measure_encoders.py [--device cpu|cuda] [--check] [--block-rows N]
           [--repeats N] [--threads N]

Speeds are GB of bfloat16 input per second, from host memory to host memory, `prepare` included.
`plain` is a torch bfloat16 -> float32 -> bfloat16 pass on the CPU over the same matrix, in turn
with the encoder, into buffers that exist already; `share` is the encoder's speed as a share of
it. `--check` first compares bytes with the numpy codecs, on random and on hard matrices.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.tensors import encode_tensor
from ninfer_tools.convert.encoders import RowEncoder, TileWorkers

SEED = 20260917
SHAPES = {"mlp gate|up": (34816, 5120), "mlp down": (5120, 17408), "attention": (14336, 5120)}
CASES = [
    (nf.Q4, "absmax"),
    (nf.Q5, "absmax"),
    (nf.Q6, "absmax"),
    (nf.Q8, "absmax"),
    (nf.FP8, "absmax"),
    (nf.NVFP4, "absmax"),
    (nf.NVFP4, "search"),
]


def cut_blocks(values: torch.Tensor, rows: int) -> Iterator[tuple[int, torch.Tensor]]:
    for begin in range(0, len(values), rows):
        yield begin, values[begin : begin + rows]


def encode(values: torch.Tensor, case: tuple[str, str], device: TileWorkers, rows: int) -> None:
    encoder = RowEncoder(case[0], tuple(values.shape), case[1], device)
    encoder.prepare(lambda: (block for _, block in cut_blocks(values, rows)))
    for begin, block in cut_blocks(values, rows):
        encoder.encode(block, begin)
    encoder.finish()


def pass_plainly(values: torch.Tensor, wide: torch.Tensor, narrow: torch.Tensor) -> None:
    wide.copy_(values)
    narrow.copy_(wide)


def time_alternately(runs: list[Callable[[], None]], repeats: int) -> list[float]:
    """Return the median seconds of each of `runs`, taken in turn, after one that is not timed."""
    seconds: list[list[float]] = [[] for _ in runs]
    for repeat in range(repeats + 1):
        for index, run in enumerate(runs):
            start = time.perf_counter()
            run()
            if repeat:
                seconds[index].append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in seconds]


def print_speeds(options: argparse.Namespace) -> None:
    device, rows = options.device, options.block_rows
    print(f"{'GB/s of bfloat16 input':<56}{'encoder':>9}{'plain':>9}{'share':>9}")
    workers = TileWorkers(device, options.threads)
    print(f"{device}, torch {torch.__version__}, {workers.threads} threads, blocks of {rows} rows")
    for name, (n, k) in SHAPES.items():
        generator = torch.Generator().manual_seed(SEED)
        shape = (min(n, options.rows), k)
        values = torch.randn(shape, generator=generator).mul_(0.02).bfloat16()
        buffers = torch.zeros(shape), torch.zeros_like(values)
        for case in CASES:
            runs: list[Callable[[], None]] = [
                partial(encode, values, case, workers, rows),
                partial(pass_plainly, values, *buffers),
            ]
            speeds = [values.numel() * 2e-9 / s for s in time_alternately(runs, options.repeats)]
            text = f"{name} {list(values.shape)}: {' '.join(case)}"
            print(
                f"{text:<56}{speeds[0]:9.3f}{speeds[1]:9.2f}{speeds[0] / speeds[1]:9.3f}",
                flush=True,
            )


def draw_hard_matrices() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    ties = rng.integers(-14, 15, (257, 320)) / 2
    any_bits = rng.integers(0, 2**32, (130, 1000), dtype=np.uint64).astype(np.uint32)
    any_bits &= np.uint32(0xC7FFFFFF)
    wide = rng.standard_normal((300, 272)) * 10.0 ** rng.integers(-30, 4, (300, 17)).repeat(16, 1)
    rows = rng.standard_normal((131, 96)) * 10.0 ** rng.integers(-44, 4, (131, 1))
    sparse = np.where(rng.random((129, 144)) < 0.02, rng.standard_normal((129, 144)), -0.0)
    drawn = {
        "gaussian": rng.standard_normal((515, 4304)) * 0.02,
        "uniform": rng.uniform(-1, 1, (384, 1024)),
        "ties": ties,
        "any bits below 2^16": any_bits.view(np.float32),
        "wide blocks": wide,
        "wide rows": rows,
        "sparse, -0": sparse,
        "subnormal": rng.standard_normal((8, 100)) * 1e-41,
        "zeros": np.zeros((5, 40)),
        "one value": np.array([[-3.7]]),
    }
    return {name: np.asarray(values, np.float32) for name, values in drawn.items()}


def encode_whole(
    values: NDArray[np.float32], case: tuple[str, str], device: str
) -> NDArray[np.uint8]:
    encoder = RowEncoder(case[0], values.shape, case[1], device)
    cut = [(begin, values[begin : begin + 128]) for begin in range(0, len(values), 128)]
    encoder.prepare(lambda: (block for _, block in cut))
    flat = np.full(encoder.geometry.bytes, 0xEE, np.uint8)
    for begin, block in cut:
        for piece in encoder.encode(block, begin):
            flat[piece.offset : piece.offset + piece.data.size] = piece.data
    for piece in encoder.finish():
        flat[piece.offset : piece.offset + piece.data.size] = piece.data
    return flat


def check_bytes(device: str) -> int:
    """Print and return how many encodings differ from numpy's."""
    wrong = 0
    for name, values in draw_hard_matrices().items():
        for case in CASES:
            want, got = encode_tensor(values, *case), encode_whole(values, case, device)
            if not np.array_equal(want, got):
                wrong += 1
                print(f"{name}, {' '.join(case)}: {int((want != got).sum())} bytes differ")
    print(f"{device}: {wrong} of {len(draw_hard_matrices()) * len(CASES)} encodings differ")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--block-rows", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=1 << 62, help="at most so many rows a matrix")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.check and check_bytes(options.device):
        sys.exit(1)
    print_speeds(options)


if __name__ == "__main__":
    main()
