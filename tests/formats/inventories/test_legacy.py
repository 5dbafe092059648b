"""Version 1/2 inventories against every published number. Rules: specs/inventories.md."""

import hashlib
from collections import Counter

import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.published import QWEN3_6_RESOURCE_BYTES, V1_DIRECTORIES
from ninfer_formats.inventories.registered import COMMUNITY, registered_inventory

BASE = ("text", "proposal", "mtp", "vision")


def test_stand_in_sizes_sum_to_the_published_totals(qwen3_8_bytes):
    assert sum(qwen3_8_bytes) == 12_837_177
    assert sum(QWEN3_6_RESOURCE_BYTES) == 12_833_441


@pytest.mark.parametrize(
    ("weights_id", "groups", "objects", "json_bytes", "file_bytes"),
    [
        ("groupwise-int", BASE, 1124, 174_230, 18_210_531_328),
        ("groupwise-int", None, 1190, 185_105, 20_437_336_576),
        ("nvfp4", BASE, 1124, 176_842, 21_492_695_040),
        ("nvfp4", None, 1190, 187_717, 23_719_496_192),
    ],
)
def test_qwen3_8_directory_has_the_published_sizes(
    weights_id, groups, objects, json_bytes, file_bytes, legacy_layout, qwen3_8_bytes
):
    """INV-20, INV-21, INV-22, INV-25."""
    laid = legacy_layout(registered_inventory("qwen3.8-27b", weights_id), qwen3_8_bytes, groups)
    assert (laid.objects, len(laid.json), laid.file_bytes) == (objects, json_bytes, file_bytes)


@pytest.mark.parametrize(
    ("model_id", "weights_id", "objects", "file_bytes"),
    [
        ("qwen3.6-27b", "groupwise-int", 1124, 17_495_365_888),
        ("qwen3.6-27b", "nvfp4", 1307, 18_324_064_000),
        ("qwen3.6-35b-a3b", "groupwise-int", 940, 22_783_246_080),
    ],
)
def test_qwen3_6_file_has_the_published_size(
    model_id, weights_id, objects, file_bytes, legacy_layout
):
    """INV-20, INV-23, INV-24."""
    inventory = registered_inventory(model_id, weights_id)
    laid = legacy_layout(inventory, QWEN3_6_RESOURCE_BYTES)
    assert (laid.objects, laid.file_bytes) == (objects, file_bytes)


@pytest.mark.parametrize(("digest", "model_id"), list(V1_DIRECTORIES.items()))
def test_version_1_directory_is_byte_exact(digest, model_id, legacy_layout):
    """INV-20: names, order, member order, shapes, formats and sizes all enter this digest."""
    inventory = registered_inventory(model_id, "groupwise-int")
    laid = legacy_layout(inventory, QWEN3_6_RESOURCE_BYTES, version=1)
    assert hashlib.sha256(laid.json).hexdigest() == digest


def test_35b_without_drafter_has_889_objects(legacy_layout):
    """INV-24."""
    inventory = registered_inventory("qwen3.6-35b-a3b", "groupwise-int")
    assert legacy_layout(inventory, QWEN3_6_RESOURCE_BYTES, BASE).objects == 889


COUNTS = {
    ("qwen3.6-27b", "groupwise-int", ""): (582, 96, 1, 183, 246, 3, 7, 0, 0),
    ("qwen3.8-27b", "groupwise-int", ""): (582, 96, 1, 183, 246, 1, 9, 0, 0),
    ("qwen3.8-27b", "nvfp4", ""): (534, 208, 1, 55, 54, 1, 7, 112, 146),
    ("qwen3.6-27b", "nvfp4", ""): (591, 343, 1, 55, 54, 1, 9, 247, 0),
    ("qwen3.8-27b", "nvfp4", COMMUNITY): (591, 343, 1, 55, 54, 1, 9, 247, 0),
    ("qwen3.6-35b-a3b", "groupwise-int", ""): (461, 60, 1, 95, 91, 5, 170, 0, 0),
}
FORMATS = (nf.BF16, nf.FP32, nf.INT32, nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8)


@pytest.mark.parametrize(("identity", "counts"), list(COUNTS.items()))
def test_format_counts_are_the_published_ones(identity, counts):
    """INV-20 to INV-24."""
    tensors = registered_inventory(*identity).select(BASE)
    found = Counter(tensor.format for tensor in tensors)
    assert tuple(found[name] for name in FORMATS) == counts


@pytest.mark.parametrize(
    ("model_id", "group", "bf16", "q8"),
    [("qwen3.8-27b", "dflash2", 45, 21), ("qwen3.6-35b-a3b", "dflash", 26, 25)],
)
def test_drafter_suffix_counts(model_id, group, bf16, q8):
    """INV-25."""
    tensors = registered_inventory(model_id, "groupwise-int").select((group,))
    assert Counter(t.format for t in tensors) == {nf.BF16: bf16, nf.Q8: q8}


def test_27b_integer_layout_split_is_679_direct_439_row_split():
    """INV-21."""
    tensors = registered_inventory("qwen3.8-27b", "groupwise-int").select(BASE)
    assert Counter(t.layout for t in tensors) == {nf.CONTIGUOUS: 679, nf.ROW_SPLIT: 439}


def test_divisor_follows_its_matrix_and_names_the_roles_it_serves():
    """INV-22, INV-26."""
    tensors = registered_inventory("qwen3.8-27b", "nvfp4").tensors
    at = next(i for i, t in enumerate(tensors) if t.name == "text/layers/0/mlp/gate_up")
    scalar = tensors[at + 1]
    assert scalar.name == "text/layers/0/mlp/gate_up_projection/input_scale_divisor"
    assert (scalar.shape, scalar.format, scalar.bytes) == ((), nf.FP32, 4)
    assert scalar.auxiliary_of == ("text/layers/0/mlp/gate", "text/layers/0/mlp/up")


def test_expert_rows_are_stacked_expert_by_expert():
    """INV-24: row of gate_up = e*1024 + p*512 + r, row of down = e*2048 + h."""
    inventory = registered_inventory("qwen3.6-35b-a3b", "groupwise-int")
    layer = "text/layers/5/moe"
    gate_up = inventory.by_name[f"{layer}/routed_gate_up"]
    assert gate_up.shape == (262144, 2048)
    assert gate_up.ranges[7] == (f"{layer}/experts/3/up", 7 * 512 * 2048, 8 * 512 * 2048)
    down = inventory.by_name[f"{layer}/routed_down"]
    assert down.shape == (524288, 512)
    assert down.ranges[3] == (f"{layer}/experts/3/down", 3 * 2048 * 512, 4 * 2048 * 512)
    sharp = [t.name for t in inventory.tensors if t.format == nf.Q6 and "routed" in t.name]
    assert sharp == [f"text/layers/{i}/moe/routed_down" for i in (34, 38, 39)]


def test_row_order_inside_fused_parents():
    """INV-21: [Q|K] and [gate|V] in elements of 5120 columns."""
    inventory = registered_inventory("qwen3.6-27b", "groupwise-int")
    layer = "text/layers/3/attention"
    assert inventory.by_name[f"{layer}/query_key"].ranges == (
        (f"{layer}/query", 0, 6144 * 5120),
        (f"{layer}/key", 6144 * 5120, 7168 * 5120),
    )
    assert inventory.by_name[f"{layer}/gate_value"].ranges == (
        (f"{layer}/gate", 0, 6144 * 5120),
        (f"{layer}/value", 6144 * 5120, 7168 * 5120),
    )
