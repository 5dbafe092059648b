"""Laws of zero runs in direct tensors: `specs/numeric-formats.md`, rules NF-62 and NF-63."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from builders.direct_matrices import fill, place, save_in_parts, save_legacy
from ninfer_formats.directory import Tensor
from ninfer_formats.inventories.profiles import PROFILE_NAMES
from ninfer_formats.reader import open_artifact
from ninfer_tools.inspection.tensor_checks import check_tensor, find_plain_norms
from ninfer_tools.inspection.verification import verify_payload
from ninfer_tools.inspection.zero_pages import find_whole_rows
from ninfer_tools.synthetic.artifact import write_synthetic
from ninfer_tools.synthetic.specification import parse_spec

# The payload of a version 2 file begins at byte 4096, so payload offsets keep to pages.
Shape = tuple[int, ...]
ROW = 3000


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., list[tuple]]:
    """Return (severity, kind, object, row, count) after zeroing payload bytes."""

    def verify(tensors: list[tuple[str, Shape]], *runs: tuple[int, int], first: int = 0):
        records = place(*tensors, first=first)
        payload = fill(records)
        for begin, end in runs:
            payload[begin:end] = bytes(end - begin)
        path = save_legacy(tmp_path / "m.ninfer", records, bytes(payload))
        faults = verify_payload(open_artifact(path)).faults
        return [
            (f.severity, f.kind, f.where.removeprefix("object text/"), f.row, f.count)
            for f in faults
            if f.where.startswith("object text/")
        ]

    return verify


@pytest.mark.parametrize("format, columns", [("bf16", 1500), ("fp32", 750), ("int32", 750)])
def test_pages_of_zeros_inside_rows_are_a_hole(find, format, columns):
    """NF-63: bytes 8192 to 16384; row 2 begins at byte 6000."""
    tensors = [(format, (20, columns))]
    assert find(tensors, (8192, 16384)) == [("error", "hole", "0", 2, 1)]
    assert find(tensors, (8192, 12288), (20480, 24576)) == [("error", "hole", "0", 2, 2)]


def test_hole_is_a_page_of_the_file_and_not_of_the_object(find):
    """NF-63: the object begins at payload byte 512."""
    tensors = [("bf16", (20, 1500))]
    assert find(tensors, (8192, 12288), first=512) == [("error", "hole", "0", 2, 1)]
    assert find(tensors, (8704, 12800), first=512) == [("notice", "zero_run", "0", 2, 1)]


@pytest.mark.parametrize("run", [(8192, 12400), (8000, 12288), (8000, 12400)])
def test_zeros_off_the_pages_are_a_notice(find, run):
    """NF-62."""
    row = run[0] // ROW
    assert find([("bf16", (20, 1500))], run) == [("notice", "zero_run", "0", row, 1)]


@pytest.mark.parametrize("run", [(8192 - 3, 12288 + 3), (8192 - 14, 12288 + 14)])
def test_zeros_beside_a_page_do_not_hide_a_hole(find, run):
    """NF-63: float32 values that were bfloat16 begin with two zero bytes."""
    ((severity, kind, *_),) = find([("bf16", (20, 1500))], run)
    assert (severity, kind) == ("error", "hole")


@pytest.mark.parametrize("begin, end", [(0, 4096), (0, 8192), (53248, 60000), (57344, 60000)])
def test_page_cut_by_the_edge_of_an_object_is_a_hole(find, begin, end):
    """NF-63: 57344 = 14 * 4096; the tensor ends at 60000."""
    found = find([("bf16", (20, 1500)), ("bf16", (40,))], (begin, end))
    assert found == [("error", "hole", "0", begin // ROW, 1)]


@pytest.mark.parametrize("begin, end", [(0, 400), (0, 2048), (59000, 60000), (58000, 59000)])
def test_short_runs_off_the_pages_are_nothing(find, begin, end):
    """NF-63."""
    assert find([("bf16", (20, 1500)), ("bf16", (40,))], (begin, end)) == []


def test_page_across_two_objects_is_a_hole_in_both(find):
    """NF-63: the second tensor begins at 12800, inside the page from 12288 on."""
    tensors = [("bf16", (4, 1600)), ("bf16", (4, 1600))]
    assert find(tensors, (12288, 16384)) == [
        ("error", "hole", "0", 3, 1),
        ("error", "hole", "1", 0, 1),
    ]


def test_whole_rows_of_zeros_are_a_notice_even_on_pages(find, tmp_path):
    """NF-62: rows of 4096 bytes; rows 2 and 3 may well hold zeros."""
    assert find([("bf16", (20, 2048))], (8192, 16384)) == [("notice", "zero_run", "0", 2, 1)]
    (message,) = [
        f.message
        for f in verify_payload(open_artifact(tmp_path / "m.ninfer")).faults
        if f.kind == "zero_run"
    ]
    assert message == "rows 2 to 3 are zero as a whole"


def test_pruned_rows_and_columns_are_no_hole(find):
    """NF-62: columns 0 to 2047 of 2500 are zero in every row."""
    assert find([("bf16", (20, 1500))], (6000, 12000)) == [("notice", "zero_run", "0", 2, 1)]
    runs = [(row * 5000, row * 5000 + 4096) for row in range(1, 20)]
    ((severity, kind, *_, count),) = find([("bf16", (20, 2500))], *runs)
    assert (severity, kind, count) == ("notice", "zero_run", 19)


def test_page_of_zeros_in_a_vector_is_a_hole(find):
    """NF-63: a vector has no rows that could be zero."""
    assert find([("bf16", (6000,))], (4096, 8192)) == [("error", "hole", "0", 2048, 1)]


def test_tensor_of_zeros_is_a_notice(find):
    """NF-62."""
    found = find([("bf16", (4, 2048)), ("bf16", (40,))], (0, 16384))
    assert found == [("notice", "all_zero", "0", None, 1)]


def test_hole_names_its_own_file(tmp_path):
    """NF-63: the payload of a part begins at byte 4096 of the part."""
    records = place(("bf16", (20, 1500)))
    payload = fill(records)
    payload[12288:20480] = bytes(8192)
    path = save_in_parts(tmp_path / "m.ninfer", records, payload, [8192, len(payload) - 8192])
    (fault,) = [f for f in verify_payload(open_artifact(path)).faults if f.kind == "hole"]
    assert fault.message.startswith(
        "8,192 zero bytes fill pages of m.ninfer.part-0001 from byte 8,192 on"
    )


@pytest.mark.parametrize(
    "begin, end, rows",
    [(0, 20, (0, 1)), (20, 60, (1, 3)), (19, 61, (1, 3)), (18, 60, None), (20, 58, None),
     (20, 21, None), (0, 100, (0, 5))],
)  # fmt: skip
def test_whole_rows_are_counted_in_words(begin, end, rows):
    """NF-63: rows of ten bfloat16 words."""
    matrix = Tensor("x", (5, 10), "bf16", "contiguous_le_v1", 0, 100)
    assert find_whole_rows(matrix, begin, end) == rows
    assert find_whole_rows(matrix._replace(shape=(50,)), begin, end) is None


@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_any_lost_page_of_a_model_is_an_error(tmp_path, profile):
    """NF-60 to NF-64: whatever formats, planes and objects the page lies across."""
    spec = f"qwen3.5-0.8b:{profile}:layers=1:vocab=600:components=text+mtp+vision:proposal=300"
    path = tmp_path / "m.ninfer"
    write_synthetic(parse_spec(spec), path)
    artifact, size = open_artifact(path), path.stat().st_size
    start, norms = artifact.prefix.payload_start, find_plain_norms(artifact)
    pages = np.random.default_rng(7).integers(start // 4096, size // 4096, 150)
    missed = []
    for at in (int(page) * 4096 for page in pages):
        spoiled = [
            item
            for item in artifact.tensors()
            if start + item.offset < at + 4096 and start + item.end > at
        ]
        with zeroed(path, at, 4096):
            faults = [fault for item in spoiled for fault in check_tensor(artifact, item, norms)]
        if spoiled and not any(fault.severity == "error" for fault in faults):
            missed.append(at)
    assert missed == []


@contextmanager
def zeroed(path: Path, at: int, count: int) -> Iterator[None]:
    """Zero some bytes of a file for a while."""
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        saved = file.read(count)
        file.seek(at)
        file.write(bytes(count))
        yield
        file.seek(at)
        file.write(saved)
