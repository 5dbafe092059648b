"""The calibration file: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import tiny_geometry
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_tools.convert.calibration.record import (
    MAX_BYTES,
    Projection,
    check_fit,
    encode_calibration,
    list_measured,
    parse_calibration,
    read_calibration,
)

SOURCES = {"base": {"headers_sha256": "aa", "content_sha256": "bb"}}
TEXT = {"sha256": "cc", "bytes": 10, "tokens": 4, "chunk_tokens": 512}
PATH = Path("c.json")
PARAMETERS = list_parameters(tiny_geometry(moe=True), ("text", "mtp"))
PROJECTIONS = {
    p.name: Projection(p.shape, dict.fromkeys(sites, 2.5)) for p, sites in list_measured(PARAMETERS)
}


def encode(projections=PROJECTIONS):
    return encode_calibration(SOURCES, TEXT, {"torch": "2.13.0"}, projections)


def parse(change):
    """Return what reading a file says after `change` of its JSON value."""
    value: dict[str, Any] = json.loads(encode())
    change(value)
    with pytest.raises(NinferError) as caught:
        parse_calibration(json.dumps(value).encode(), PATH)
    text = str(caught.value)
    assert text.startswith("c.json: ") and "\n" not in text
    return text


def first(value):
    return next(iter(value["projections"].values()))


def test_file_comes_back_as_it_was():
    """V-109."""
    head = PROJECTIONS | {"text/layers/0/moe/experts/3/down": Projection((128, 32), {"s": None})}
    found = parse_calibration(encode(head), PATH)
    assert found.projections == head
    assert (found.sources, found.text, found.made_with) == (SOURCES, TEXT, {"torch": "2.13.0"})


def test_float32_values_survive_the_text():
    """V-109."""
    value = 0.10000000149011612  # float32(0.1)
    found = parse_calibration(encode({"a": Projection((1,), {"s": value})}), PATH)
    assert found.projections["a"].largest["s"] == value


def test_measured_are_projections_of_text_and_mtp():
    """V-103 and V-105: the head at both ends, no norm, no embedding, no drafter."""
    parameters = list_parameters(tiny_geometry(drafter=True), ("text", "mtp", "vision", "dflash2"))
    found = {p.name: sites for p, sites in list_measured(parameters)}
    assert found["text/output_head"] == ("text/final_hidden", "mtp/final_hidden")
    assert found["text/layers/0/mlp/down"] == ("text/layers/0/mlp/product",)
    assert found["mtp/input_projection"] == ("mtp/stem_input",)
    assert not [n for n in found if n.startswith(("vision/", "dflash2/", "proposal/"))]
    assert not [n for n in found if n.endswith(("norm", "token_embedding", "convolution"))]


def set_largest(value):
    return lambda record: first(record)["largest_input"].update({"s": value})


@pytest.mark.parametrize(
    "value", [-1.0, 1e39, 10**400, True, "3", [1.0]], ids=lambda value: str(value)[:8]
)
def test_values_that_are_no_magnitude_are_refused(value):
    """V-109."""
    assert "not a largest magnitude" in parse(set_largest(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(text):
    """V-109."""
    raw = encode().replace(b"2.5", text.encode(), 1)
    with pytest.raises(NinferError, match="not finite"):
        parse_calibration(raw, PATH)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.update(format="other"),
        lambda v: v.update(version=2),
        lambda v: v.update(version=True),
        lambda v: v.update(extra=1),
        lambda v: v.pop("text"),
        lambda v: v.update(sources=[1]),
        lambda v: v.update(sources={"base": {"headers_sha256": 3}}),
        lambda v: v.update(text={"sha256": 1}),
        lambda v: v["text"].update(tokens="4"),
        lambda v: v.update(made_with=None),
        lambda v: v.update(projections=[]),
        lambda v: v["projections"].update(a=[]),
        lambda v: v["projections"].update(a={}),
        lambda v: first(v).update(shape=[-1]),
        lambda v: first(v).update(shape="x"),
        lambda v: first(v).update(largest_input=[]),
    ],
)
def test_other_contents_are_refused_in_one_line(change):
    """V-109."""
    parse(change)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"\xff", b"{" * 100_000, b'{"format": "ninfer-calibration"', b"\0" * 64,
        b'{"format": "ninfer-calibration", "format": "ninfer-calibration"}', b"GGUF",
    ],
    ids=range(8),
)  # fmt: skip
def test_hostile_bytes_are_refused_in_one_line(raw):
    """V-109."""
    with pytest.raises(NinferError) as caught:
        parse_calibration(raw, PATH)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """V-109: the size is looked at before the bytes."""
    with pytest.raises(UsageError, match="No such file"):
        read_calibration(tmp_path / "none.json")
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UsageError, match="too large"):
        read_calibration(large)


def fit(projections=PROJECTIONS, sources=SOURCES):
    check_fit(parse_calibration(encode(projections), PATH), PARAMETERS, sources)


def test_projections_too_many_are_no_fault():
    """V-110: a calibration of text and MTP serves a conversion of text alone."""
    fit(PROJECTIONS | {"other": Projection((1,), {"s": 1.0})})


def test_other_checkpoint_is_refused():
    """V-110; a digest that is not at hand is not compared."""
    fit(sources={"base": {"headers_sha256": "aa"}})
    with pytest.raises(NinferError, match="another checkpoint as base"):
        fit(sources={"base": {"headers_sha256": "xx"}})
    with pytest.raises(NinferError, match="another checkpoint as base"):
        fit(sources={"base": {"headers_sha256": "aa", "content_sha256": "xx"}})
    with pytest.raises(NinferError, match="other sources"):
        fit(sources={**SOURCES, "quantized": {"headers_sha256": "aa"}})


def test_missing_projection_is_named():
    """V-110."""
    name = "text/layers/1/attention/query"
    with pytest.raises(NinferError, match=f"lacks 1 projections: {name}"):
        fit({n: p for n, p in PROJECTIONS.items() if n != name})
    with pytest.raises(NinferError, match="lacks 1 projections: text/output_head"):
        fit(PROJECTIONS | {"text/output_head": Projection((320, 128), {"text/final_hidden": 1.0})})


def test_other_shape_is_refused_with_both():
    """V-110."""
    name = "text/layers/1/attention/query"
    with pytest.raises(NinferError, match=r"got \[1, 2\], want \[128, 128\]"):
        fit(PROJECTIONS | {name: Projection((1, 2), PROJECTIONS[name].largest)})


def test_rows_of_the_head_have_the_inputs_of_the_head():
    """V-105."""
    found = parse_calibration(encode(), PATH)
    assert found.largest_input("proposal/head", "mtp/final_hidden") == 2.5
    assert found.covers("proposal/head", "mtp/final_hidden")
    assert found.largest_input("proposal/head", "dflash2/final_hidden") is None
