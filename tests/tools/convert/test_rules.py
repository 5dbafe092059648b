"""`--set` and the proposal shortlist."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted
from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.proposal import choose_tokens, default_rows, read_counts
from ninfer_tools.convert.rules import parse_rule


def formats(artifact, *names):
    return [artifact.parameter(name).parts[0].tensor.format for name in names]


def test_last_rule_that_reaches_a_parameter_wins(tmp_path):
    """V-12 and V-13: a glob reaches matrices only, an exact name anything."""
    rules = ["text/layers/*=q8", "text/layers/1/mlp/*=fp8", "text/final_norm=fp32"]
    folder = build_checkpoint().write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer", rules=rules)
    assert formats(
        artifact,
        "text/layers/0/mlp/up", "text/layers/1/mlp/up", "text/final_norm",
        "text/layers/0/input_norm", "text/layers/0/gdn/convolution",
    ) == [nf.Q8, nf.FP8, nf.FP32, nf.BF16, nf.BF16]  # fmt: skip


def test_stored_codes_can_be_encoded_anew_in_another_format(tmp_path):
    """V-12: a rule goes before the import."""
    tiny = build_checkpoint(form="ct_nvfp4")
    rules = ["text/layers/0/*=bf16"]
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", rules=rules)
    assert formats(artifact, "text/layers/0/mlp/up") == [nf.BF16]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("text/*=q3", "not understood"),
        ("q4", "not understood"),
        ("text/*=q4:search", "unknown method"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(text, what):
    """V-14."""
    with pytest.raises(UsageError, match=what):
        parse_rule(text)


@pytest.mark.parametrize(
    ("form", "rule", "what"),
    [
        (None, "text/layers/9/*=q4", "reaches no parameter"),
        (None, "text/final_norm=q4", "holds matrices only"),
        ("ct_nvfp4", "text/layers/0/mlp/*=nvfp4:search", "taken over untouched"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(tmp_path, capsys, form, rule, what):
    """V-14 and V-15."""
    folder = build_checkpoint(form=form).write(tmp_path / "m")
    assert convert(folder, tmp_path / "a.ninfer", rules=[rule]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and what in lines[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_shortlist_orders_by_count_and_forces_special_tokens():
    """V-20: counts 5 3 9 0 3 0; 3 and 5 are special; four rows leave two free ones."""
    counts = np.array([5, 3, 9, 0, 3, 0])
    assert choose_tokens(counts, {3, 5}, 4).tolist() == [2, 0, 3, 5]


def test_forced_tokens_come_after_picked_ones_of_equal_count():
    """V-20: token 0 is special and as frequent as 1 and 2."""
    assert choose_tokens(np.array([4, 4, 4, 1]), {0}, 3).tolist() == [1, 2, 0]


def test_without_ranking_the_lowest_ids_come_first_and_special_ones_last():
    """V-21."""
    found = choose_tokens(np.zeros(10, np.int64), {1, 8}, 5)
    assert found.tolist() == [0, 2, 3, 1, 8] and found.dtype == np.int32


@pytest.mark.parametrize("rows", [1, 11])
def test_impossible_shortlists_are_refused(rows):
    """V-22."""
    with pytest.raises(UsageError, match="impossible number"):
        choose_tokens(np.zeros(10, np.int64), {1, 8}, rows)


def test_default_shortlist_follows_the_vocabulary():
    """V-23."""
    assert default_rows(320, 289) == 0
    assert default_rows(248320, 248077) == 131072
    assert default_rows(65536, 65536) == 32768


def test_proposal_head_holds_the_picked_rows_of_the_head(tmp_path):
    """V-20 and V-24: row 0 of the ranking, cut at the token count."""
    counts = np.arange(2 * 320).reshape(2, 320)
    counts[0, 7] = 10_000
    ranking = tmp_path / "r.i64"
    ranking.write_bytes(counts.astype("<i8").tobytes())
    tiny = build_checkpoint()
    artifact = converted(
        tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", ranking=ranking, proposal_rows=128
    )
    ids = artifact.parameter("proposal/token_ids").decode()
    assert ids[0] == 7 and ids[1] == 288 and ids.max() < 289 and len(set(ids.tolist())) == 128
    head = artifact.parameter("proposal/head")
    assert head.parts[0].tensor.format == nf.Q4
    want = tiny.values["text/output_head"][ids]
    assert np.linalg.norm(head.decode() - want) < 0.15 * np.linalg.norm(want)
    proposal = artifact.components["text"].proposal
    assert proposal is not None and (proposal.domain, proposal.rows) == ("indexed", 128)


def test_ranking_of_another_vocabulary_is_refused(tmp_path):
    """V-24."""
    path = tmp_path / "r.i64"
    path.write_bytes(bytes(8 * 319))
    with pytest.raises(NinferError, match="does not fit the vocabulary"):
        read_counts(path, 320, 289)
