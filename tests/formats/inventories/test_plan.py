"""Version 3 inventories against published files and the tiling laws."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import INPUT_DIVISOR
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import FAMILY_NAMES, family_geometry
from ninfer_formats.inventories.geometry import with_layers
from ninfer_formats.inventories.plan import plan_inventory
from ninfer_formats.inventories.profiles import (
    PROFILE_NAMES,
    build_mixed_nvfp4,
    build_profile,
)
from ninfer_formats.inventories.published import QWEN3_6_RESOURCE_BYTES
from ninfer_formats.inventories.registered import registered_inventory

BASE = ("text", "mtp", "vision")
# Version 3 installs longer chat templates: 775 bytes more for qwen3.6, 760 for qwen3.8.
BYTES_36 = (*QWEN3_6_RESOURCE_BYTES[:2], 7_764 + 775, *QWEN3_6_RESOURCE_BYTES[3:])
BYTES_38 = (12_811_444, 17_000, 7_756 + 760, 202, 390, 385)


def build_plan(model_id, profile, components):
    geometry = family_geometry(model_id)
    built = (
        build_mixed_nvfp4() if profile == "mixed" else build_profile(profile, geometry, model_id)
    )
    return geometry, plan_inventory(geometry, built, components, 131072)


@pytest.mark.parametrize(
    ("model_id", "profile", "drafter", "sizes", "objects", "span", "start"),
    [
        ("qwen3.8-27b", "groupwise-int", ("dflash2",), BYTES_38, 1190, 20_437_148_928, 372_736),
        ("qwen3.6-27b", "groupwise-int", (), BYTES_36, 1124, 17_495_190_528, 348_160),
        ("qwen3.6-35b-a3b", "groupwise-int", ("dflash",), BYTES_36, 940, 22_783_095_296, 7_389_184),
        ("qwen3.8-27b", "nvfp4-official", ("dflash2",), BYTES_38, 1246, 23_719_322_628, 393_216),
        ("qwen3.6-27b", "mixed", (), BYTES_36, 1545, 18_323_916_548, 438_272),
    ],
)
def test_converted_file_has_the_published_size(
    model_id, profile, drafter, sizes, objects, span, start, v3_layout
):
    """INV-11, INV-12, INV-13, INV-14: the published files are start + span bytes long.

    The stand-in provenance is a little shorter than the real one, within the 4096-byte padding.
    """
    components = (*BASE, *drafter)
    geometry, plan = build_plan(model_id, profile, components)
    laid = v3_layout(geometry, plan, components, sizes)
    assert (laid.objects, laid.span, laid.file_bytes - laid.span) == (objects, span, start)


@pytest.mark.parametrize(
    ("model_id", "components", "bindings", "uses"),
    [
        ("qwen3.8-27b", BASE, 1422, 785),
        ("qwen3.8-27b", (*BASE, "dflash2"), 1513, 844),
        ("qwen3.6-35b-a3b", (*BASE, "dflash"), 32713, 32184),
    ],
)
def test_binding_and_use_counts(model_id, components, bindings, uses):
    """INV-8, INV-9."""
    _, plan = build_plan(model_id, "groupwise-int", components)
    assert (len(plan.bindings), len(plan.uses)) == (bindings, uses)


def test_integer_plan_has_the_parents_of_the_version_2_inventory():
    """INV-11: same shapes and formats, whatever the ids."""
    _, plan = build_plan("qwen3.6-35b-a3b", "groupwise-int", (*BASE, "dflash"))
    old = registered_inventory("qwen3.6-35b-a3b", "groupwise-int").tensors
    assert {(p.shape, p.format, p.ranges) for p in plan.parents} == {
        (t.shape, t.format, t.ranges) for t in old
    }


def small(name):
    """A family member cut to four layers with few experts: same rules, fewer parameters."""
    geometry = with_layers(family_geometry(name), 4)
    if geometry.text.is_moe:
        geometry = replace(geometry, text=replace(geometry.text, num_experts=3))
    return geometry


def component_sets(geometry):
    optional = geometry.components[1:]
    for count in range(len(optional) + 1):
        for chosen in combinations(optional, count):
            yield ("text", *chosen), (4096 if count % 2 else None)
    yield geometry.components, 131072


@pytest.mark.parametrize("profile", PROFILE_NAMES)
@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_every_parameter_is_bound_once_and_ranges_tile_every_parent(name, profile):
    """INV-10, for every size, profile and component set."""
    geometry = small(name)
    for components, rows in component_sets(geometry):
        plan = plan_inventory(geometry, build_profile(profile, geometry), components, rows)
        check_tiling(plan)


def check_tiling(plan):
    owners = Counter(r.parameter for parent in plan.parents for r in parent.ranges)
    shapes = {p.name: p.shape for p in plan.parameters}
    assert len(shapes) == len(plan.parameters)
    assert set(plan.bindings) == set(shapes)
    assert set(owners.values()) == {1}
    for parent in plan.parents:
        end = 0
        for name, begin, stop in parent.ranges:
            assert begin == end and stop - begin == math.prod(shapes[name])
            part = plan.bindings[name].parts[0]
            assert (part.object, part.begin, part.end) == (parent.id, begin, stop)
            assert plan.bindings[name].whole == (len(parent.ranges) == 1)
            if plan.bindings[name].whole:
                assert parent.shape == shapes[name]
            end = stop
        assert end == math.prod(parent.shape)
    shared = [p.name for p in plan.parameters if p.name not in owners]
    assert set(list(plan.bindings)[len(owners) :]) == set(shared)


@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 8])
def test_any_ratio_of_value_to_key_heads_tiles(ratio):
    """INV-10."""
    geometry = small("qwen3.8-27b")
    text = replace(geometry.text, linear_num_value_heads=16 * ratio)
    geometry = replace(geometry, text=text)
    plan = plan_inventory(geometry, build_profile("nvfp4", geometry), ("text",))
    check_tiling(plan)
    parent = plan.bindings["text/layers/0/gdn/z"].parts[0].object
    shapes = {p.id: p.shape for p in plan.parents}
    assert shapes[parent] == (2 * 2048 + 2 * 2048 * ratio, 5120)


def test_full_size_of_every_model_tiles():
    """INV-10 on the largest members, experts included."""
    for name in ("qwen3.5-122b-a10b", "qwen3.8-27b"):
        geometry = family_geometry(name)
        check_tiling(plan_inventory(geometry, build_profile("nvfp4", geometry), BASE, 131072))


@pytest.mark.parametrize("name", ["qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b"])
@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_tied_head_shares_the_embedding_object(name, profile):
    """INV-13."""
    geometry = small(name)
    plan = plan_inventory(geometry, build_profile(profile, geometry), BASE, None)
    assert plan.bindings["text/output_head"] == plan.bindings["text/token_embedding"]
    assert list(plan.bindings)[-1] == "text/output_head"
    vocabulary = [p for p in plan.parents if p.shape[0] == 248320]
    assert len(vocabulary) == 1
    assert {u.input for u in plan.uses if u.parameter == "text/output_head"} == {
        "text/final_hidden",
        "mtp/final_hidden",
    }


def test_ids_count_up_in_file_order():
    """INV-12."""
    _, plan = build_plan("qwen3.8-27b", "nvfp4-official", BASE)
    assert [p.id for p in plan.parents[:2]] == ["weight/000000", "weight/000001"]
    assert [a.id for a in plan.auxiliaries] == [f"auxiliary/{i:06d}" for i in range(168)]
    first = next(u for u in plan.uses if u.auxiliaries)
    assert first.auxiliaries[INPUT_DIVISOR].parts[0].object == "auxiliary/000000"
    assert (plan.auxiliaries[0].parameter, plan.auxiliaries[0].input) == (
        first.parameter,
        first.input,
    )


def test_groups_come_before_leftovers_and_leftovers_in_parameter_order():
    """INV-12."""
    _, plan = build_plan("qwen3.8-27b", "groupwise-int", BASE)
    groups = [len(p.ranges) > 1 for p in plan.parents]
    assert groups == sorted(groups, reverse=True)
    rest = [p.ranges[0].parameter for p in plan.parents if len(p.ranges) == 1]
    order = [p.name for p in plan.parameters]
    assert rest == sorted(rest, key=order.index)
    assert rest[0] == "text/token_embedding"


def test_a_and_b_projections_are_packed_unless_the_profile_separates_them():
    """INV-11."""
    name = "text/layers/0/gdn/a_projection"
    for model_id, profile, whole in (
        ("qwen3.8-27b", "groupwise-int", True),
        ("qwen3.6-27b", "mixed", True),
        ("qwen3.8-27b", "nvfp4-official", False),
        ("qwen3.8-27b", "nvfp4", False),
    ):
        assert build_plan(model_id, profile, ("text",))[1].bindings[name].whole == whole


def test_attention_falls_back_to_pairs_where_formats_differ():
    """INV-11: q,k in one format and gate,v in another make two parents."""
    _, plan = build_plan("qwen3.8-27b", "groupwise-int", ("text",))
    parts = {
        n: plan.bindings[f"text/layers/3/attention/{n}"].parts[0].object
        for n in ("query", "key", "gate", "value")
    }
    assert parts["query"] == parts["key"] != parts["gate"] == parts["value"]


def test_residencies_are_never_packed_together():
    """INV-11: a parent holds parameters of one layer of one residency."""
    _, plan = build_plan("qwen3.8-27b", "bf16", (*BASE, "dflash2"))
    for parent in plan.parents:
        layers = {r.parameter.rpartition("/")[0].rpartition("/")[0] for r in parent.ranges}
        assert len(layers) == 1


def test_every_parent_has_the_layout_and_size_of_its_format():
    _, plan = build_plan("qwen3.8-27b", "nvfp4-official", BASE)
    sizes = {(p.shape, p.format): p.bytes for p in plan.parents}
    assert sizes[(14336, 5120), nf.FP8] == 73_428_992
    assert sizes[(248320, 5120), nf.FP8] == 248320 * 5120 + 2 * 248320
    assert {p.layout for p in plan.parents if p.format == nf.NVFP4} == {nf.BLOCK_SCALE}


def test_component_the_model_lacks_is_refused_by_name():
    geometry = family_geometry("qwen3.8-27b")
    profile = build_profile("bf16", geometry)
    with pytest.raises(UsageError, match=r"no such component.*got dflash, want text, mtp"):
        plan_inventory(geometry, profile, ("text", "dflash"))
    with pytest.raises(UsageError, match="component text is required"):
        plan_inventory(geometry, profile, ("mtp",))
    with pytest.raises(UsageError, match=r"proposal rows.*got 248321"):
        plan_inventory(geometry, profile, ("text",), 248321)
