"""Formats, layouts and late checks: specs/other-engines.md, section 4."""

import pytest

from builders.edited_artifacts import find_object, lay_again

_HEAD = "text/output_head"


def _object_of(root, parameter):
    binding = root["bindings"][parameter]
    target = binding.get("object") or binding["parts"][0]["object"]
    return find_object(root, target)


@pytest.mark.parametrize("engine", ["upstream-v3", "this"])
@pytest.mark.parametrize(
    ("format", "layout", "words"),
    [
        ("t2_g128_fp16", "row_split_k128_v1", "ternary groups of 128"),
        ("q2_g64_fp16", "row_split_k128_v1", "2-bit integer groups"),
        ("fp8_e4m3fn_row_fp16", "row_interleaved_v1", "FP8 rows with fp16 scales"),
        ("gguf_q4_k", "gguf_blocks_v1", "GGUF block format of a fork"),
        ("q4_g64_fp16", "gguf_blocks_v1", "GGUF blocks kept as they were"),
    ],
)
def test_fork_formats_are_refused_and_explained(judge_v3, engine, format, layout, words):
    """E-14."""

    def edit(root):
        _object_of(root, "text/layers/0/mlp/gate").update(format=format, layout=layout)

    verdict = judge_v3(engine, edit, layers=4)
    assert any(words in text for text in verdict.reasons)
    assert any("convert the checkpoint again" in text for text in verdict.notices)


def test_unknown_format_is_fatal_in_version_2_engines(judge_legacy):
    """E-14: there even an object of an unknown group counts."""

    def edit(root):
        find_object(root, "text/layers/0/mlp/gate_up")["format"] = "Q3G64"

    verdict = judge_legacy("upstream-v2", edit=edit)
    assert any("unknown tensor format" in t and "Q3G64" in t for t in verdict.reasons)


@pytest.mark.parametrize(
    ("format", "layout"),
    [("NVFP4", "blockscale-k16-m128x4-v1"), ("FP8_E4M3FN_ROW_BF16S", "row-scale-v1")],
)
def test_newer_formats_are_unknown_to_the_version_1_engine(judge_legacy, format, layout):
    """E-14."""

    def edit(root):
        find_object(root, "text/layers/0/mlp/gate_up").update(format=format, layout=layout)
        lay_again(root)

    verdict = judge_legacy("upstream-v1", "qwen3.6-27b", version=1, edit=edit)
    assert any(text.startswith("upstream-v1 has no format ") for text in verdict.reasons)


def test_many_tensors_of_one_unknown_format_make_one_reason(judge_v3):
    def edit(root):
        for layer in range(12):
            _object_of(root, f"text/layers/{layer}/mlp/down")["format"] = "q2_g64_fp16"

    verdict = judge_v3("upstream-v3", edit, layers=12)
    assert len([text for text in verdict.reasons if "q2_g64_fp16" in text]) == 1
    assert "12 tensors" in verdict.reasons[-1]
    assert "and 4 more" in verdict.reasons[-1]


def _shift_last(root):
    root["objects"][-1]["offset"] += 1
    root["files"][0]["payload_bytes"] += 1


@pytest.mark.parametrize("engine", ["upstream-v3", "this"])
@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda root: _object_of(root, "text/output_head").update(bytes=8), "stores 8 bytes"),
        (
            lambda root: _object_of(root, "text/output_head").update(shape=[5, 5, 5]),
            "matrices only",
        ),
        (_shift_last, "tensor is not aligned"),
    ],
)
def test_faults_found_on_access_are_found_before(judge_v3, engine, edit, words):
    """E-14."""
    verdict = judge_v3(engine, edit, layers=4)
    assert any(words in text for text in verdict.reasons)


def test_object_that_nothing_refers_to_is_skipped_in_version_3(judge_v3):
    """E-14."""

    def edit(root):
        end = root["files"][0]["payload_bytes"]
        offset = -(-end // 256) * 256
        extra = {"id": "spare", "kind": "tensor", "shape": [4, 64], "layout": "row_split_k128_v1"}
        root["objects"].append({**extra, "format": "q2_g64_fp16", "offset": offset, "bytes": 64})
        root["files"][0]["payload_bytes"] = offset + 64

    verdict = judge_v3("upstream-v3", edit, layers=4)
    assert verdict.compatible
    assert any("nothing refers to it" in text for text in verdict.notices)


def _make_edges(root):
    # 5120 wide rows, 96 of them: both block sizes of NVFP4 are 128 rows and 64 columns.
    for name in ("text/layers/0/gdn/a_projection", "text/layers/0/gdn/b_projection"):
        item = _object_of(root, name)
        item.update(format="nvfp4", layout="block_scale_k16_m128x4_v1")
    lay_again(root)


def test_nvfp4_edges_are_read_here_and_refused_upstream(judge_v3):
    """E-15: a and b have 48 rows."""
    verdict = judge_v3("upstream-v3", _make_edges, layers=4)
    assert any("NVFP4 matrix [48, 5120] has edges" in text for text in verdict.reasons)
    assert judge_v3("this", _make_edges, layers=4).compatible


@pytest.mark.parametrize("divisors", [1, 2])
def test_member_divisors_is_fatal_upstream_whatever_its_value(judge_v3, divisors):
    """E-16."""

    def edit(root):
        _object_of(root, "text/layers/0/mlp/gate")["divisors"] = divisors
        lay_again(root)

    options = {"profile": "nvfp4", "layers": 4}
    verdict = judge_v3("upstream-v3", edit, **options)
    assert any("member `divisors`" in text for text in verdict.reasons)
    assert judge_v3("this", edit, **options).compatible
