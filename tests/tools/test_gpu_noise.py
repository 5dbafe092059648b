"""The measure that the GPU check holds random models to (N-70), on the processor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"
LENGTH = 40


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Prompt, exact logits, noise, and an engine with bfloat16 activations; by kind of model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        from scripts.gpu_engine import noise
        from scripts.gpu_engine.bench import Bench
        from scripts.gpu_engine.models import Shelf

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        bench = Bench(Shelf(tmp_path_factory.mktemp("noise")), "cpu", 0)
        ids, found = bench.prompt(LENGTH, 1), {}
        for name in ("dense-128", "moe-256"):
            artifact = bench.shelf.take(name)
            exact = bench.start_exact(artifact, kv_kind="fp8")
            truth = noise.find_truth(exact, ids)
            rows = noise.measure_noise(bench, artifact, ids, truth, kv_kind="fp8")
            rounded = noise.start_rounded(artifact, kv_kind="fp8")
            found[name] = SimpleNamespace(exact=exact, rounded=rounded, truth=truth, rows=rows)
        torch.set_num_threads(threads)
        yield SimpleNamespace(ids=ids, noise=noise, **{k[:3]: v for k, v in found.items()})


def shares(measured, got, model):
    """Shares of all rows and of the worst, of what is allowed."""
    rows = measured.noise.compare_to_noise("", got, model.truth.logits, model.rows)
    return tuple(row.share for row in rows)


@pytest.mark.parametrize("kind", ["den", "moe"])
def test_roundings_in_chunks_are_within_the_noise_and_faults_are_not(measured, kind):
    """N-70: half as much error again in all rows, a row of another prompt, and what is not a
    number are faults."""
    from scripts.gpu_engine.bench import prompt_logits

    model = getattr(measured, kind)
    with measured.noise.forced_routers(model.truth):
        got = prompt_logits(model.rounded, measured.ids, 16)
    for share, least in zip(shares(measured, got, model), (0.5, 0.1), strict=True):
        assert least < share <= 1
    want = model.truth.logits
    assert shares(measured, want + 1.8 * (got - want), model)[0] > 1
    for bad in (want[7], torch.full_like(want[7], float("nan"))):
        wrong = got.clone()
        wrong[23] = bad
        assert shares(measured, wrong, model)[1] > 1


def test_forced_experts_are_those_of_the_exact_pass_in_chunks_of_any_size(measured):
    """N-70: with their own weights, an exact engine is not changed by its own choices."""
    from scripts.gpu_engine.bench import prompt_logits

    model = measured.moe
    assert len(model.truth.choices) == 2 and model.truth.choices[0].shape[0] == LENGTH
    for chunk in (None, 7):
        with measured.noise.forced_routers(model.truth):
            got = prompt_logits(model.exact, measured.ids, chunk)
        assert (got - model.truth.logits).abs().max() < 1e-5 * model.truth.logits.abs().max()
    shifted = tuple((choice + 1) % 4 for choice in model.truth.choices)
    with measured.noise.forced_routers(measured.noise.Truth(model.truth.logits, shifted)):
        got = prompt_logits(model.exact, measured.ids)
    assert shares(measured, got, model)[0] > 1


def test_noise_of_four_layers_is_what_counting_roundings_gives(measured):
    """N-70: 62 roundings of 2^-8, and two independent codings at most."""
    scale = measured.den.truth.logits.square().mean().sqrt()
    share = float(measured.den.rows.square().mean().sqrt() / scale)
    assert 0.8 * 2**-8 * (62 / 3) ** 0.5 < share < 3.1e-2
