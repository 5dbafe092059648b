"""The family table, and geometries cut or extended in depth."""

import pytest

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import FAMILY_NAMES, family_geometry
from ninfer_formats.inventories.geometry import with_layers


def test_names():
    """INV-1."""
    assert FAMILY_NAMES == (
        "qwen3.5-0.8b",
        "qwen3.5-2b",
        "qwen3.5-4b",
        "qwen3.5-9b",
        "qwen3.5-27b",
        "qwen3.5-35b-a3b",
        "qwen3.5-122b-a10b",
        "qwen3.5-397b-a17b",
        "qwen3.6-27b",
        "qwen3.6-35b-a3b",
        "qwen3.8-27b",
    )


@pytest.mark.parametrize(
    ("name", "ratio", "full_layers", "tied"),
    [
        ("qwen3.5-0.8b", 1, 6, True),
        ("qwen3.5-4b", 2, 8, True),
        ("qwen3.5-9b", 2, 8, False),
        ("qwen3.8-27b", 3, 16, False),
        ("qwen3.6-35b-a3b", 2, 10, False),
        ("qwen3.5-397b-a17b", 4, 15, False),
    ],
)
def test_value_heads_per_key_head_and_full_layers(name, ratio, full_layers, tied):
    """INV-1."""
    text = family_geometry(name).text
    assert text.linear_num_value_heads == ratio * text.linear_num_key_heads
    assert text.layer_types.count("full_attention") == full_layers
    assert text.layer_types[3] == "full_attention"
    assert text.tie_word_embeddings is tied


def test_drafters():
    """INV-1."""
    kinds = {n: d.kind for n in FAMILY_NAMES if (d := family_geometry(n).drafter)}
    assert kinds == {
        "qwen3.6-27b": "dflash",
        "qwen3.6-35b-a3b": "dflash",
        "qwen3.8-27b": "dflash2",
    }


def test_unknown_model_is_refused_with_the_list():
    with pytest.raises(UsageError, match=r"got qwen3-8b, want qwen3\.5-0\.8b, "):
        family_geometry("qwen3-8b")


@pytest.mark.parametrize("layers", [1, 6, 64, 70])
def test_every_fourth_layer_stays_full(layers):
    """INV-2."""
    types = with_layers(family_geometry("qwen3.8-27b"), layers).text.layer_types
    assert len(types) == layers
    assert all((kind == "full_attention") == (i % 4 == 3) for i, kind in enumerate(types))


@pytest.mark.parametrize(("layers", "taps"), [(64, (5, 19, 33, 47, 61)), (20, (5, 19)), (4, (3,))])
def test_drafter_taps_stay_inside_the_model(layers, taps):
    """INV-2."""
    drafter = with_layers(family_geometry("qwen3.8-27b"), layers).drafter
    assert drafter is not None and drafter.target_layer_ids == taps


@pytest.mark.parametrize("layers", [0, -1, 4097])
def test_impossible_layer_count_is_refused(layers):
    with pytest.raises(UsageError, match="impossible number of layers"):
        with_layers(family_geometry("qwen3.8-27b"), layers)
