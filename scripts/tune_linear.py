#!/usr/bin/env python3
"""Time launch options of skinny products on this machine's GPU: the source of linear's TUNED.

For every format and shape, all warps and stages in a CUDA graph over copies of the matrix that do
not fit the L2 cache together. Prints microseconds and the entries that beat the default by the
given margin with the same numbers; scripts/gpu_check.py holds them to their bounds afterwards.

    python scripts/tune_linear.py [--formats nvfp4,bf16] [--tokens 1] [--margin 0.05]
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Matrices of the 27B and 35B-A3B models: rows, columns.
SHAPES = (
    (17408, 5120), (5120, 17408), (16384, 5120), (14336, 5120), (5120, 6144), (248320, 5120),
    (2048, 4096), (12288, 2048), (9216, 2048), (248320, 2048),
)  # fmt: skip
WARPS, STAGES = (2, 4, 8), (2, 3, 4, 5, 6)
L2_BYTES = 256 << 20
LAUNCHES = 20


def time_product(matrices: list[Any], tokens: int, tuning: Any) -> tuple[float, Any]:
    """Return microseconds of one product and its result; infinity when it does not compile."""
    import torch

    from ninfer_kernels.linear.kernel import launch_skinny
    from ninfer_kernels.linear.op import scratch_bytes

    first = matrices[0]
    generator = torch.Generator("cuda").manual_seed(tokens)
    x = torch.randn(tokens, first.columns, generator=generator, device="cuda").bfloat16()
    out = torch.empty(tokens, first.rows, dtype=torch.bfloat16, device="cuda")
    needed = scratch_bytes(tokens, first, x.dtype)
    scratch = torch.empty(needed // 4, device="cuda") if needed else None
    try:
        launch_skinny(x, first, None, out, scratch, tuning)
        torch.cuda.synchronize()
    except Exception as error:  # What a compiler refuses has no common class.
        print(f"  {tuning}: {str(error).splitlines()[0][:80]}")
        return float("inf"), None
    result = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for matrix in itertools.islice(itertools.cycle(matrices), LAUNCHES):
            launch_skinny(x, matrix, None, out, scratch, tuning)
    best = float("inf")
    for _ in range(6):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3 / LAUNCHES)
    return best, result


def tune(format: str, rows: int, columns: int, tokens: int, margin: float, limit: int) -> str:
    """Print one line of times; return the entry of the fastest options, empty without one."""
    import torch

    from ninfer_kernels.linear.cases import random_matrix
    from ninfer_kernels.linear.kernel import default_tuning
    from ninfer_kernels.tuning import Tuning

    def draw() -> Any:
        return random_matrix(format, rows, columns, torch.Generator("cuda").manual_seed(1))

    first = draw()
    size = sum(plane.numel() * plane.element_size() for plane in first.planes.values())
    copies = [draw() for _ in range(L2_BYTES // size)]
    default = default_tuning(format)
    base, want = time_product([first, *copies], tokens, default)
    options = {}
    for warps, stages in itertools.product(WARPS, STAGES):
        tuning = Tuning(warps, stages, limit or default.max_registers)
        took, got = time_product([first, *copies], tokens, tuning)
        # Matrix units of other sizes add in another order: the last bit may differ.
        if got is not None and (got - want).abs().max() <= 2.0**-7 * want.abs().max():
            options[tuning] = took
    fastest = min(options, key=lambda tuning: options[tuning])
    took = options[fastest]
    rate = size / took / 1e3
    print(
        f"{format} {rows}x{columns}: {base:.1f} us, fastest {took:.1f} us ({rate:.0f} GB/s) "
        f"with {fastest.num_warps} warps, {fastest.num_stages} stages; {len(options)} fit",
        flush=True,
    )
    if took > base * (1 - margin):
        return ""
    major, minor = torch.cuda.get_device_capability()
    return f'    Place({major * 10 + minor}, ("{format}", {rows}, {columns})): {fastest},'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--formats", default="nvfp4,q4_g64_fp16,fp8_e4m3fn_row_bf16,bf16")
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--registers", type=int, default=0, help="limit, default: the kernel's")
    arguments = parser.parse_args()
    entries = [
        tune(format, *shape, arguments.tokens, arguments.margin, arguments.registers)
        for format in arguments.formats.split(",")
        for shape in SHAPES
    ]
    print("\n".join(entry for entry in entries if entry))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "kernels")]
    main()
