"""Laws of the rotary embedding: rules N-23 to N-26 of specs/numerics.md."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from builders.transformers_oracle import load_configuration, load_modeling
from ninfer_kernels.rope import (
    Yarn,
    normalise_and_rotate,
    rotate,
    text_rotation,
    vision_rotation,
)
from ninfer_kernels.rope.cases import CASES, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_every_rotation_is_within_its_derived_error(case, backend, device):
    """N-26, and the table of N-23 at positions up to 2^18."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


def test_mrope_axes_are_interleaved():
    """N-24: t h w ten times, then t h."""
    axes = text_rotation(1e7, 64, sections=(11, 11, 10)).axes.tolist()
    assert axes == [0, 1, 2] * 10 + [0, 1]
    assert text_rotation(1e7, 12, sections=(4, 1, 1)).axes.tolist() == [0, 1, 2, 0, 0, 0]
    assert text_rotation(1e4, 8).axes.tolist() == [0, 0, 0, 0]


def test_vision_angles_are_rows_then_columns():
    """N-24."""
    rotation = vision_rotation(16)
    assert rotation.axes.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    expected = [1.0, 0.1, 0.01, 0.001] * 2
    assert rotation.inverse_frequencies.tolist() == pytest.approx(expected, rel=1e-6)
    assert not rotation.rounds_table


def text_config(**rope: object) -> Any:
    parameters = {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2]}
    return load_configuration().Qwen3_5TextConfig(
        head_dim=64, max_position_embeddings=262144, rope_parameters=parameters | rope
    )


def test_text_rotation_is_that_of_transformers():
    """N-23, N-24: frequencies bit for bit, the whole operation to fp32 rounding."""
    theirs = load_modeling()
    torch.manual_seed(1)
    table = theirs.Qwen3_5TextRotaryEmbedding(text_config(rope_type="default"))
    rotation = text_rotation(1e7, 16, sections=(3, 3, 2))
    assert torch.equal(rotation.inverse_frequencies, table.inv_freq)
    q, k = torch.randn(5, 4, 64), torch.randn(5, 2, 64)
    norm = theirs.Qwen3_5RMSNorm(64)
    norm.weight.data = torch.randn(64)
    positions = torch.randint(0, 262144, (3, 5), dtype=torch.int32)
    cos, sin = table(q, positions[:, None].long())
    want = theirs.apply_rotary_pos_emb(norm(q), norm(k), cos[0], sin[0])
    weight = norm.weight.data
    got = normalise_and_rotate(q, k, weight, weight, positions, rotation, eps=1e-6)
    for ours, reference in zip(got, want, strict=True):
        torch.testing.assert_close(ours, reference.detach(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "extra",
    [{}, {"attention_factor": 1.25}, {"mscale": 0.7, "mscale_all_dim": 1.2}, {"truncate": False}],
)
def test_yarn_is_that_of_transformers(extra):
    """N-25."""
    theirs = load_modeling()
    original = {"factor": 4.0, "original_max_position_embeddings": 262144}
    table = theirs.Qwen3_5TextRotaryEmbedding(text_config(rope_type="yarn", **original, **extra))
    rotation = text_rotation(1e7, 16, sections=(3, 3, 2), yarn=Yarn(**original, **extra))
    torch.testing.assert_close(rotation.inverse_frequencies, table.inv_freq, rtol=1e-6, atol=0)
    assert rotation.attention_factor == pytest.approx(table.attention_scaling, rel=1e-12)


def test_yarn_default_attention_factor():
    """N-25: 0.1 ln 4 + 1."""
    factor = text_rotation(1e7, 64, yarn=Yarn(4.0, 262144)).attention_factor
    assert factor == pytest.approx(0.1 * math.log(4) + 1, rel=1e-12)


def test_vision_rotation_is_that_of_transformers():
    """N-23, N-24."""
    theirs = load_modeling()
    torch.manual_seed(2)
    config = load_configuration().Qwen3_5VisionConfig(hidden_size=144, num_heads=2)
    q, k = torch.randn(2, 7, 2, 72)
    positions = torch.randint(0, 64, (2, 7), dtype=torch.int32)
    table = theirs.Qwen3_5VisionRotaryEmbedding(config)
    freqs = positions[..., None].float() * table.inv_freq
    angles = torch.cat([freqs[0], freqs[1]] * 2, dim=-1)
    want = theirs.apply_rotary_pos_emb_vision(q, k, angles.cos(), angles.sin())
    got = rotate(q, k, positions, vision_rotation(72))
    for ours, reference in zip(got, want, strict=True):
        torch.testing.assert_close(ours, reference, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rotation_may_replace_its_input(backend, device):
    torch.manual_seed(3)
    q, k = torch.randn(2, 3, 32, device=device), torch.randn(2, 1, 32, device=device)
    weight = torch.randn(32, device=device)
    positions = torch.tensor([[5, 6]], dtype=torch.int32, device=device)
    rotation = text_rotation(1e4, 32, device=device)
    options = {"eps": 1e-6, "offset": False, "backend": backend}
    want = normalise_and_rotate(q, k, weight, weight, positions, rotation, **options)
    got = normalise_and_rotate(
        q, k, weight, weight, positions, rotation, q_out=q, k_out=k, **options
    )
    assert got[0] is q
    assert torch.equal(q, want[0])
    assert torch.equal(k, want[1])


def test_position_zero_turns_nothing():
    q, k = torch.randn(1, 2, 8), torch.randn(1, 1, 8)
    positions = torch.zeros(1, 1, dtype=torch.int32)
    got = rotate(q, k, positions, text_rotation(1e4, 8))
    assert torch.equal(got[0], q)
    assert torch.equal(got[1], k)


def test_wrong_arguments_are_named():
    q, k, positions = torch.zeros(2, 2, 8), torch.zeros(2, 1, 8), torch.zeros(1, 2).int()
    rotation = text_rotation(1e4, 8)
    with pytest.raises(ValueError, match="M-RoPE sections: got"):
        text_rotation(1e7, 64, sections=(11, 11, 11))
    with pytest.raises(ValueError, match="rotary dimensions: got 7"):
        text_rotation(1e7, 7)
    with pytest.raises(ValueError, match="multiple of 4"):
        vision_rotation(70)
    with pytest.raises(ValueError, match="positions: got"):
        rotate(q, k, positions.long(), rotation)
    with pytest.raises(ValueError, match="k: got"):
        rotate(q, k[:1], positions, rotation)
    with pytest.raises(ValueError, match="rotated dimensions: got 16"):
        rotate(q, k, positions, text_rotation(1e4, 16))
    with pytest.raises(ValueError, match="q_weight"):
        weight = torch.ones(8)
        normalise_and_rotate(q, k, weight[:4], weight, positions, rotation, eps=1e-6)
