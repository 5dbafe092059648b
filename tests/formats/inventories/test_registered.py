"""Matching a file's objects against the registered inventories."""

import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.registered import (
    COMMUNITY,
    IDENTITIES,
    find_inventory,
    find_mismatches,
    registered_inventory,
)

BASE = ("text", "proposal", "mtp", "vision")


def names_of(inventory, groups=None):
    chosen = inventory.groups if groups is None else groups
    return [name for group in chosen for name in inventory.groups[group]]


@pytest.mark.parametrize(("model_id", "weights_id"), IDENTITIES)
def test_complete_file_matches_with_nothing_missing(model_id, weights_id):
    """INV-30."""
    inventory = registered_inventory(model_id, weights_id)
    match = find_inventory(2, model_id, weights_id, names_of(inventory), nf.FP8)
    assert match is not None
    assert match.present == tuple(inventory.groups)
    assert (match.missing, match.extra, match.absent) == ((), (), ())


def test_unregistered_identity_has_no_inventory():
    """INV-30."""
    assert find_inventory(2, "qwen3.8-27b", "w8a8", []) is None
    assert find_inventory(2, "qwen3.8-27b", None, []) is None
    assert find_inventory(1, "llama", None, []) is None
    with pytest.raises(KeyError):
        registered_inventory("llama", "nvfp4")


def test_version_1_means_groupwise_int():
    """INV-30."""
    inventory = registered_inventory("qwen3.6-27b", "groupwise-int")
    match = find_inventory(1, "qwen3.6-27b", None, names_of(inventory), nf.Q6)
    assert match is not None and match.inventory.weights_id == "groupwise-int"
    assert match.present == BASE


@pytest.mark.parametrize(
    ("format", "form", "objects"),
    [(nf.FP8, "", 1190), (nf.Q8, COMMUNITY, 1373), (None, "", 1190)],
)
def test_shared_identity_is_told_apart_by_the_embedding_format(format, form, objects):
    """INV-31."""
    match = find_inventory(2, "qwen3.8-27b", "nvfp4", [], format)
    assert match is not None
    assert match.inventory.form == form
    assert len(match.inventory.tensors) + len(match.inventory.resources) == objects


@pytest.mark.parametrize(
    ("model_id", "group"), [("qwen3.8-27b", "dflash2"), ("qwen3.6-35b-a3b", "dflash")]
)
def test_absent_drafter_is_fine(model_id, group):
    """INV-32."""
    inventory = registered_inventory(model_id, "groupwise-int")
    match = find_inventory(2, model_id, "groupwise-int", names_of(inventory, BASE))
    assert match is not None
    assert (match.present, match.absent, match.missing) == (BASE, (group,), ())
    assert match.bound_groups == BASE


def test_partial_drafter_names_every_missing_object():
    """INV-32."""
    inventory = registered_inventory("qwen3.8-27b", "groupwise-int")
    names = names_of(inventory)
    gone = ["dflash2/final_norm", "dflash2/layers/2/mlp/down"]
    match = find_inventory(2, "qwen3.8-27b", "groupwise-int", [n for n in names if n not in gone])
    assert match is not None
    assert match.partial == {"dflash2": (gone[1], gone[0])}
    assert match.missing == (gone[1], gone[0])
    assert match.present == BASE
    assert match.bound_groups == (*BASE, "dflash2")


def test_absent_mtp_breaks_the_contract():
    """INV-32."""
    inventory = registered_inventory("qwen3.6-27b", "groupwise-int")
    names = names_of(inventory, ("text", "proposal", "vision"))
    match = find_inventory(2, "qwen3.6-27b", "groupwise-int", names)
    assert match is not None
    assert match.absent == ("mtp",)
    assert match.missing == inventory.groups["mtp"]
    assert len(match.missing) == 12


def test_unknown_group_is_skippable_but_an_odd_name_in_a_known_one_is_not():
    """INV-33."""
    inventory = registered_inventory("qwen3.6-27b", "groupwise-int")
    extra = ["dflash2/final_norm", "text/layers/0/hadamard"]
    match = find_inventory(2, "qwen3.6-27b", "groupwise-int", names_of(inventory) + extra)
    assert match is not None
    assert match.extra == tuple(extra)
    assert match.unknown_groups == ("dflash2",)
    assert match.unexpected == ("text/layers/0/hadamard",)
    assert match.missing == ()


def test_resources_belong_to_the_group_of_their_component():
    """INV-29."""
    inventory = registered_inventory("qwen3.6-27b", "groupwise-int")
    assert inventory.groups["vision"][:2] == (
        "frontend/preprocessor_config.json",
        "frontend/video_preprocessor_config.json",
    )
    assert len(inventory.groups["vision"]) == 2 + 333


def test_descriptor_of_another_revision_is_named():
    """INV-34: same file name, another revision of the weights."""
    inventory = registered_inventory("qwen3.8-27b", "groupwise-int")
    descriptors = {t.name: (t.shape, t.format) for t in inventory.select(BASE)}
    assert find_mismatches(inventory, descriptors) == ()
    descriptors["text/token_embedding"] = ((248320, 5120), nf.BF16)
    (mismatch,) = find_mismatches(inventory, descriptors)
    assert mismatch == (
        "text/token_embedding",
        ((248320, 5120), nf.BF16),
        ((248320, 5120), nf.Q8),
    )
