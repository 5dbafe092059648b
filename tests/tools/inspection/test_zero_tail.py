"""Laws of files that end in zeros: `specs/numeric-formats.md`, rule NF-64."""

from __future__ import annotations

import numpy as np
import pytest

from builders.artifact_bytes import legacy_bytes, save, save_small
from builders.direct_matrices import fill, place, save_in_parts, save_legacy
from ninfer_tools.inspection.zero_tail import count_zeros
from ninfer_tools.synthetic.artifact import write_synthetic
from ninfer_tools.synthetic.specification import parse_spec

from .conftest import SPEC, errors_of


@pytest.mark.parametrize("lost", [512, 4096, 100_000])
def test_cut_file_padded_with_zeros_to_its_size_is_an_error(copy_of_legal, inspect, lost):
    size = copy_of_legal.stat().st_size
    with copy_of_legal.open("r+b") as file:
        file.truncate(size - lost)
        file.truncate(size)
    tails = [e for e in errors_of(inspect, copy_of_legal) if e["kind"] == "zero_tail"]
    assert len(tails) == 1
    assert tails[0]["count"] >= lost
    assert f"from byte {size - tails[0]['count']:,} on" in tails[0]["message"]


def test_part_padded_with_zeros_is_an_error(tmp_path, inspect):
    path = tmp_path / "m.ninfer"
    write_synthetic(parse_spec(SPEC), path, max_file_bytes=5_000_000)
    assert errors_of(inspect, path) == []
    part = tmp_path / "m.ninfer.part-0001"
    size = part.stat().st_size
    with part.open("r+b") as file:
        file.truncate(size - 2000)
        file.truncate(size)
    tails = [e for e in errors_of(inspect, path) if e["kind"] == "zero_tail"]
    assert len(tails) == 1 and tails[0]["message"].startswith("m.ninfer.part-0001 ends in 2,0")


def test_object_that_is_zero_as_a_whole_is_no_cut(tmp_path, inspect):
    """The last matrix of the worked example is."""
    kinds = {e["kind"] for e in errors_of(inspect, save_small(tmp_path, 2))}
    assert "zero_tail" not in kinds


@pytest.mark.parametrize(("zeros", "found"), [(511, []), (512, ["zero_tail"])])
def test_a_cut_shows_from_512_zeros_on(tmp_path, inspect, zeros, found):
    tensor = {"name": "text/a", "kind": "tensor", "shape": [512], "format": "BF16"}
    tensor |= {"layout": "contiguous-le-v1", "offset": 0, "bytes": 1024}
    root = {"identity": {"model_id": "x", "weights_id": "y"}, "objects": [tensor]}
    payload = b"\x3f" * (1024 - zeros) + bytes(zeros)
    path = save(tmp_path / "m.ninfer", legacy_bytes(2, root, payload))
    assert [e["kind"] for e in errors_of(inspect, path)] == found


@pytest.mark.parametrize("size", [0, 1, 7, 2**20, 2**20 + 1, 3 * 2**20 + 5])
def test_zeros_are_counted_from_the_end(size):
    flat = np.zeros(size + 3, np.uint8)
    flat[:3] = 1
    assert count_zeros(flat) == size
    assert count_zeros(np.zeros(size, np.uint8)) == size


def findings(inspect, path) -> list[tuple]:
    """Return (severity, kind, object, message) of every finding about zeros."""
    record = inspect(path, "--verify", "--json").record["verify"]
    faults = [*record["errors"], *record["notices"]]
    kinds = ("zero_tail", "zero_run", "hole")
    return [
        (f["severity"], f["kind"], f["where"].removeprefix("object text/"), f["message"])
        for f in faults
        if f["kind"] in kinds
    ]


@pytest.mark.parametrize("format, word", [("bf16", 2), ("fp32", 4), ("int32", 4)])
def test_last_rows_of_zeros_are_a_notice(tmp_path, inspect, format, word):
    """NF-64: the last 243 rows of a codebook stand for ids that no tokenizer gives."""
    records = place((format, (300, 256)))
    payload = fill(records)
    payload[-243 * 256 * word :] = bytes(243 * 256 * word)
    path = save_legacy(tmp_path / "m.ninfer", records, payload)
    assert findings(inspect, path) == [
        ("notice", "zero_run", "0", "rows 57 to 299 are zero as a whole")
    ]
    assert inspect(path, "--verify").code == 0


def test_a_few_last_rows_of_zeros_are_a_notice_too(tmp_path, inspect):
    """NF-64: under a page, where NF-62 is silent."""
    records = place(("bf16", (300, 256)))
    payload = fill(records)
    payload[-1024:] = bytes(1024)
    (found,) = findings(inspect, save_legacy(tmp_path / "m.ninfer", records, payload))
    assert found[:3] == ("notice", "zero_tail", "0")
    assert found[3].endswith(
        "1,024 zero bytes from byte 156,672 on: rows 298 to 299 are zero as a whole"
    )


@pytest.mark.parametrize("shape", [(300, 256), (10, 30, 256)])
@pytest.mark.parametrize("extra", [2, 512 - 2])
def test_zeros_from_inside_a_row_to_the_end_are_a_cut(tmp_path, inspect, shape, extra):
    """NF-64."""
    records = place(("bf16", shape))
    payload = fill(records)
    payload[-(5 * 512 + extra) :] = bytes(5 * 512 + extra)
    (found,) = findings(inspect, save_legacy(tmp_path / "m.ninfer", records, payload))
    assert found[:2] == ("error", "zero_tail")


def test_small_words_do_not_hide_where_a_row_begins(tmp_path, inspect):
    """NF-64: the int32 word 5 ends in three zero bytes."""
    records = place(("int32", (300, 256)))
    payload = fill(records)
    payload[-2048 - 4 :] = b"\5\0\0\0" + bytes(2048)
    (found,) = findings(inspect, save_legacy(tmp_path / "m.ninfer", records, payload))
    assert found[:2] == ("notice", "zero_tail") and "rows 298 to 299" in found[3]


def test_zeros_over_further_objects_are_a_cut(tmp_path, inspect):
    """NF-64: although they begin with a row."""
    records = place(("bf16", (300, 256)), ("bf16", (512,)))
    payload = fill(records)
    payload[290 * 512 :] = bytes(len(payload) - 290 * 512)
    assert ("error", "zero_tail", "0") in [
        f[:3] for f in findings(inspect, save_legacy(tmp_path / "m.ninfer", records, payload))
    ]


def test_zeros_at_the_end_of_a_vector_are_a_cut(tmp_path, inspect):
    """NF-64: a vector has no rows."""
    records = place(("bf16", (1024,)))
    payload = fill(records)
    payload[-512:] = bytes(512)
    (found,) = findings(inspect, save_legacy(tmp_path / "m.ninfer", records, payload))
    assert found[:2] == ("error", "zero_tail")


@pytest.mark.parametrize(
    "sizes", [[8192, 32768], [8192, 4096, 28672], [12288, 4096, 24576], [8192, 4096, 4096, 24576]]
)
def test_rows_of_zeros_across_the_ends_of_parts_are_a_notice(tmp_path, inspect, sizes):
    """NF-64: rows of 1000 bytes; the zeros begin and end away from every part's end."""
    records = place(("bf16", (40, 500)))
    payload = fill(records)
    payload[7000:17000] = bytes(10000)
    payload += bytes(sum(sizes) - len(payload))
    path = save_in_parts(tmp_path / "m.ninfer", records, payload, sizes)
    assert findings(inspect, path) == [
        ("notice", "zero_run", "0", "rows 7 to 16 are zero as a whole")
    ]


def test_zeros_that_stop_with_a_part_are_a_cut(tmp_path, inspect):
    """NF-64: the row goes on in the next part."""
    records = place(("bf16", (40, 500)))
    payload = fill(records)
    payload[7000:8192] = bytes(1192)
    path = save_in_parts(tmp_path / "m.ninfer", records, payload, [8192, len(payload) - 8192])
    assert [f[:2] for f in findings(inspect, path)] == [("error", "zero_tail")]


def test_zeros_before_a_missing_part_are_a_cut(tmp_path, inspect):
    """NF-64: what follows is not known."""
    records = place(("bf16", (40, 500)))
    payload = fill(records)
    payload[7000:9000] = bytes(2000)
    path = save_in_parts(tmp_path / "m.ninfer", records, payload, [8192, len(payload) - 8192])
    assert [f[:2] for f in findings(inspect, path)] == [("notice", "zero_tail")]
    (tmp_path / "m.ninfer.part-0001").unlink()
    assert [f[:2] for f in findings(inspect, path)] == [("error", "zero_tail")]
