"""Laws of `ninfer plan`: the table, what fits, and the rules MEM-30 to MEM-32."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ninfer_tools.cli import app
from ninfer_tools.serve_session import service_setup

MODEL = "qwen3.8-27b:nvfp4:layers=4"
GIB, MIB = 1 << 30, 1 << 20


def plan(*arguments: object, code: int = 0) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["plan", "--synthetic", MODEL, "--json", *map(str, arguments)])
    assert found.exit_code == code, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module", autouse=True)
def opened_once() -> Iterator[None]:
    """Made-up artifacts take a second to open, and are never changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_setup, "open_source", functools.cache(service_setup.open_source))
        yield


@pytest.fixture(scope="module")
def scarce() -> int:
    """Bytes that leave 400 MiB for contexts: less than the longest needs in any KV type."""
    return plan("--device", "cuda", "--max-context", 64)["needed"] + 400 * MIB


def test_the_table_has_every_use_and_adds_up():
    """MEM-1."""
    arguments = [
        "plan",
        "--synthetic",
        "qwen3.8-27b:nvfp4",
        "--memory",
        "24GiB",
        "--spec",
        "mtp",
        "--vision",
    ]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    rows = dict(re.findall(r"^  (\S.*?)  +([\d,]+)  [\d.]+ \w+$", found.stdout, re.MULTILINE))
    counts = {name: int(text.replace(",", "")) for name, text in rows.items()}
    assert counts.pop("available") == 24 * GIB
    assert counts.pop("headroom") == 0
    assert counts.pop("needed") == sum(counts.values())
    for name in ("weights of text", "weights of mtp", "weights of vision", "KV cache", "GDN slots",
                 "workspace", "CUDA graphs", "vision workspace"):  # fmt: skip
        assert counts[name] > 0, name
    assert re.search(
        r"largest --max-context .*: fp32 \d+, bf16 \d+, fp8 \d+, int8 \d+", found.stdout
    )


def test_json_says_what_the_table_says():
    record = plan("--memory", "24GiB")
    assert record["needed"] == sum(record["parts"].values())
    assert (record["available"], record["fits"], record["remedy"]) == (24 * GIB, True, None)


def test_case_41_the_largest_context_fits_and_a_larger_one_does_not(scarce: int):
    """MEM-31."""
    contexts = plan("--memory", scarce)["largest_context"]
    for kind in ("bf16", "int8"):
        most = contexts[kind]
        assert 0 < most < 262144
        fitting = plan("--memory", scarce, "--kv-dtype", kind, "--max-context", most)
        assert fitting["fits"]
        larger = plan("--memory", scarce, "--kv-dtype", kind, "--max-context", most + 64, code=1)
        assert not larger["fits"]


def test_auto_fills_memory_up_to_the_headroom():
    """MEM-30."""
    options = ("--memory", "5GiB", "--max-concurrency", 8, "--max-context", 65536)
    record = plan(*options, "--kv-capacity", "auto", "--headroom", "512MiB")
    assert record["headroom"] == GIB // 2
    assert record["needed"] + record["headroom"] <= 5 * GIB
    capacity = record["settings"]["kv_capacity"]
    assert 65536 < capacity < 8 * 65536 and capacity % 64 == 0
    more = plan(*options, "--kv-capacity", capacity + 64, "--headroom", "512MiB", code=1)
    assert more["needed"] + more["headroom"] > 5 * GIB


def test_auto_leaves_a_gibibyte_and_takes_no_more_than_the_lanes_need():
    """MEM-30."""
    record = plan("--memory", "100GiB", "--kv-capacity", "auto", "--max-concurrency", 2)
    assert record["headroom"] == GIB
    assert record["settings"]["kv_capacity"] == 2 * 8192


def test_case_41_what_does_not_fit_ends_with_both_numbers_and_what_would(scarce: int):
    """MEM-9."""
    memory = ["--memory", str(scarce), "--max-context"]
    context = plan(*memory, 64)["largest_context"]["int8"]
    found = CliRunner().invoke(app, ["plan", "--synthetic", MODEL, *memory, str(context)])
    assert found.exit_code == 1
    (line,) = found.stderr.splitlines()
    needed = plan(*memory, context, code=1)["needed"]
    assert f"needs {needed} bytes, {scarce} are available; at most --max-context" in line
    named = re.search(r"--kv-dtype (\w+)", line)
    assert named is not None
    assert plan(*memory, context, "--kv-dtype", named[1])["fits"]


def test_headroom_that_is_too_large_is_named(scarce: int):
    arguments = ["--memory", str(scarce), "--max-context", "64", "--headroom"]
    record = plan(*arguments, "500MiB", code=1)
    assert record["remedy"].endswith(f"--headroom {400 * MIB}")
    assert plan(*arguments, 400 * MIB)["fits"]


def test_images_have_a_row_and_the_sum_stays():
    """MEM-32."""
    with_tower, without = plan("--vision", "--device", "cuda"), plan("--device", "cuda")
    extra = {"weights of vision", "images in the workspace"}
    assert set(with_tower["parts"]) - set(without["parts"]) == extra
    assert with_tower["needed"] - without["needed"] == sum(with_tower["parts"][n] for n in extra)


def test_without_a_gpu_a_plan_for_one_says_what_is_needed():
    record = plan("--device", "cuda:3")
    assert (record["available"], record["fits"], record["largest_context"]) == (None, None, None)
    assert record["needed"] > 0 and record["settings"]["device"] == "cuda:3"


def test_the_processor_is_planned_with_the_memory_of_the_system():
    found = CliRunner().invoke(app, ["plan", "--synthetic", MODEL, "--device", "cpu", "--json"])
    record = json.loads(found.stdout)
    assert record["settings"]["device"] == "cpu" and record["available"] > 0
    assert record["parts"]["CUDA graphs"] == 0


def test_it_takes_the_options_of_serve():
    plan("--host", "0.0.0.0", "--port", 8080, "--max-pending-requests", 16, "--preserve-thinking",
         "--pending-timeout-ms", 600000, "--memory", "24GiB")  # fmt: skip


def test_all_that_does_not_fit_is_said_at_once():
    found = CliRunner().invoke(
        app, ["plan", "--synthetic", MODEL, "--kv-dtype", "rk2v4-e8", "--max-context", "999999",
              "--memory", "lots"],
    )  # fmt: skip
    assert found.exit_code == 1
    assert len(found.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "count"),
    [("1024", 1024), ("24GiB", 24 * GIB), ("24g", 24 * GIB), ("24GB", 24 * 10**9),
     ("1.5 MiB", 3 << 19), ("7b", 7), ("2KiB", 2048)],
)  # fmt: skip
def test_sizes_are_read(text: str, count: int):
    from ninfer_tools.serve_session.byte_sizes import parse_size

    assert parse_size(text, "--memory") == count


def test_the_command_line_does_not_load_the_server():
    """Other commands start as fast as without it."""
    code = (
        "import sys, ninfer_tools.cli as c, typer; typer.main.get_command(c.app); "
        "print([m for m in ('torch', 'fastapi', 'uvicorn', 'pydantic', 'ninfer_runtime') "
        "if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)}, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == "[]"
