"""Print what the NVFP4 `search` encoder gains over `absmax`, and how fast both run.

Usage: python scripts/measure_nvfp4_search.py [ROWS [COLUMNS]]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.tensors import decode_tensor, encode_tensor

SEED = 20260917


def draw_matrices(shape: tuple[int, int]) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    outliers = rng.standard_normal(shape)
    outliers[rng.random(shape) < 1e-3] *= 20
    matrices = {
        "Gaussian": rng.standard_normal(shape),
        "Laplace": rng.laplace(size=shape),
        "Student-t(4)": rng.standard_t(4, size=shape),
        "Gaussian, outliers": outliers,
    }
    return {name: values.astype(np.float32) for name, values in matrices.items()}


def measure(values: NDArray[np.float32], method: str) -> tuple[float, float]:
    """Return the mean squared error and the speed in MB of float32 input per second."""
    start = time.perf_counter()
    encoded = encode_tensor(values, nf.NVFP4, method)
    speed = values.nbytes / 1e6 / (time.perf_counter() - start)
    decoded = decode_tensor(encoded, nf.NVFP4, nf.BLOCK_SCALE, values.shape)
    return float(np.square(values - decoded).mean(dtype=np.float64)), speed


def main() -> None:
    sizes = [int(argument) for argument in sys.argv[1:3]]
    rows, columns = (*sizes, *(2048, 4096)[len(sizes) :])
    print(f"{rows} x {columns} values, seed {SEED}; MB/s of float32 input, one thread")
    heads = ("absmax MSE", "search MSE", "lower by", "absmax", "search")
    print(f"{'matrix':<20}" + "".join(f"{head:>12}" for head in heads))
    for name, values in draw_matrices((rows, columns)).items():
        (plain, fast), (searched, slow) = measure(values, "absmax"), measure(values, "search")
        errors = f"{plain:>12.6f}{searched:>12.6f}{1 - searched / plain:>12.2%}"
        print(f"{name:<20}{errors}{fast:>7.0f} MB/s{slow:>7.0f} MB/s")


if __name__ == "__main__":
    main()
