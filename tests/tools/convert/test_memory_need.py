"""The predicted peak memory of a conversion against the measured one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from builders.header_checkpoints import open_base, sized_frontend, write_sparse
from ninfer_formats.inventories.family import family_geometry
from ninfer_tools.convert import memory_need

ROOT = Path(__file__).parents[3]


def test_peak_of_a_real_conversion_is_below_the_prediction_and_near_it(tmp_path):
    """V-147: 1.5 GB of weights, most of it the embedding; the program measures in a process of
    its own."""
    geometry = family_geometry("qwen3.5-0.8b")
    opened = open_base(geometry, "Qwen3.5-0.8B", sized_frontend("qwen3.6"))
    folder, out = write_sparse(tmp_path / "Qwen3.5-0.8B", opened), tmp_path / "a.ninfer"
    line = [sys.executable, "scripts/measure_memory.py", folder, "--out", out, "--device", "cpu"]
    options = ["--components", "text", "--profile", "groupwise-int"]
    done = subprocess.run([*line, *options], capture_output=True, text=True, cwd=ROOT)
    out.unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["peak"] <= record["predicted"] <= 2 * record["peak"], record


def test_prediction_knows_the_buffers_of_the_conversion():
    """V-147."""
    from ninfer_tools.convert.devices import CPU_WAITING_BYTES, choose_device
    from ninfer_tools.convert.packing import BLOCK_VALUES

    device = choose_device("cpu")
    assert device.block_values == BLOCK_VALUES
    assert device.waiting_bytes == CPU_WAITING_BYTES
    assert device.readers + 4 == memory_need._BLOCKS
    assert device.workers.threads <= memory_need._THREADS
