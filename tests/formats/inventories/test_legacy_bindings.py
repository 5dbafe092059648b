"""Version 1/2 directories seen through version 3 names. Rules: specs/inventories.md."""

import pytest

from ninfer_formats.directory import INPUT_DIVISOR
from ninfer_formats.inventories.legacy_bindings import bindings_of, components_of, uses_of
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_formats.inventories.registered import COMMUNITY, IDENTITIES, registered_inventory

BASE = ("text", "proposal", "mtp", "vision")
ALL = [*((*identity, "") for identity in IDENTITIES), ("qwen3.8-27b", "nvfp4", COMMUNITY)]


@pytest.mark.parametrize(
    ("model_id", "groups", "bindings", "uses"),
    [
        ("qwen3.8-27b", BASE, 1422, 785),
        ("qwen3.8-27b", None, 1513, 844),
        ("qwen3.6-35b-a3b", None, 32713, 32184),
    ],
)
def test_counts_of_an_upgraded_file(model_id, groups, bindings, uses):
    """INV-27."""
    inventory = registered_inventory(model_id, "groupwise-int")
    assert len(bindings_of(inventory, groups)) == bindings
    assert len(uses_of(inventory, groups)) == uses


@pytest.mark.parametrize("identity", ALL)
def test_exactly_the_expected_parameters_are_bound(identity):
    """INV-10, INV-27: every parameter once, every parent tiled without gap or overlap."""
    inventory = registered_inventory(*identity)
    components = set(inventory.groups) - {"proposal"}
    expected = list_parameters(inventory.geometry, components, inventory.proposal_rows)
    bindings = bindings_of(inventory)
    assert set(bindings) == {p.name for p in expected}
    aliases = {p.name: p.alias_of for p in expected if p.alias_of}
    assert all(bindings[name] == bindings[target] for name, target in aliases.items())
    sizes = {p.name: p.shape for p in expected}
    for tensor in inventory.tensors:
        end = 0
        for name, begin, stop in tensor.ranges:
            assert begin == end and stop - begin == _count(sizes[name])
            end = stop
        assert tensor.auxiliary_of or end == _count(tensor.shape)


def _count(shape):
    total = 1
    for size in shape:
        total *= size
    return total


def test_policy_follows_the_format():
    """INV-28."""
    uses = uses_of(registered_inventory("qwen3.8-27b", "nvfp4"))
    policies = {(u.parameter, u.input): u.activation_policy for u in uses}
    assert policies["text/layers/0/mlp/down", "text/layers/0/mlp/product"] == "AllowA4"
    assert policies["text/layers/63/mlp/down", "text/layers/63/mlp/product"] == "AllowA8"
    assert policies["text/output_head", "dflash2/final_hidden"] == "AllowA8"
    assert policies["proposal/head", "mtp/final_hidden"] == "A16Only"


def test_policy_follows_the_format_stored_in_the_file_if_it_differs():
    """INV-28."""
    inventory = registered_inventory("qwen3.8-27b", "nvfp4")
    uses = uses_of(inventory, formats={"text/output_head": "bf16"})
    assert {u.activation_policy for u in uses if u.parameter == "text/output_head"} == {"A16Only"}


@pytest.mark.parametrize(
    ("identity", "carried", "scalars"),
    [(("qwen3.8-27b", "nvfp4"), 168, 112), (("qwen3.6-27b", "nvfp4"), 485, 247)],
)
def test_one_divisor_serves_every_role_of_its_projection(identity, carried, scalars):
    """INV-26."""
    found = [u.auxiliaries[INPUT_DIVISOR] for u in uses_of(registered_inventory(*identity))
             if u.auxiliaries]  # fmt: skip
    assert len(found) == carried
    assert len({binding.parts[0].object for binding in found}) == scalars


def test_missing_tensors_bind_nothing_and_have_no_uses():
    """INV-32."""
    inventory = registered_inventory("qwen3.8-27b", "groupwise-int")
    gone = {"dflash2/layers/1/attention/query_key_value"}
    bindings = bindings_of(inventory, None, gone)
    lost = [f"dflash2/layers/1/attention/{n}" for n in ("query", "key", "value")]
    lost += [f"dflash2/layers/1/attention/context_{n}" for n in ("key", "value")]
    assert set(bindings_of(inventory)) - set(bindings) == set(lost)
    assert {u.parameter for u in uses_of(inventory)} - {
        u.parameter for u in uses_of(inventory, None, gone)
    } == set(lost)


def test_components_of_a_legacy_file():
    """INV-29."""
    inventory = registered_inventory("qwen3.8-27b", "groupwise-int")
    parts = {c.name: c for c in components_of(inventory, BASE)}
    assert list(parts) == ["text", "mtp", "vision"]
    assert parts["text"].resources["chat_template.jinja"] == "frontend/chat_template.jinja"
    assert list(parts["vision"].resources) == [
        "preprocessor_config.json",
        "video_preprocessor_config.json",
    ]
    assert (parts["text"].target, parts["mtp"].target) == (None, "text")
    proposal = parts["text"].proposal
    assert proposal is not None and (proposal.domain, proposal.rows) == ("indexed", 131072)
    assert "dflash2" in {c.name for c in components_of(inventory)}


@pytest.mark.parametrize(
    ("weights_id", "groups", "json_bytes", "file_bytes"),
    [
        ("groupwise-int", BASE, 384_992, 18_210_748_740),
        ("groupwise-int", None, 413_664, 20_437_570_372),
        ("nvfp4", BASE, 413_664, 21_492_937_028),
        ("nvfp4", None, 442_336, 23_719_758_660),
    ],
)
def test_upgraded_file_has_the_size_the_upgrade_tool_gives_it(
    weights_id, groups, json_bytes, file_bytes, upgraded_layout, qwen3_8_bytes
):
    """INV-27, INV-28, INV-29: the padded directory and the file as the upgrade tool writes them."""
    inventory = registered_inventory("qwen3.8-27b", weights_id)
    laid = upgraded_layout(inventory, qwen3_8_bytes, groups)
    assert laid.file_bytes - laid.span - 32 == json_bytes
    assert laid.file_bytes == file_bytes
