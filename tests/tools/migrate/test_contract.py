"""Laws of version 3 to version 2: `specs/migration.md`, M-15 to M-19."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from builders.sparse_files import REGISTERED, legacy_objects, marker, save_converted
from ninfer_formats.reader import open_artifact
from ninfer_formats.tensors import decode_tensor, encode_tensor
from ninfer_tools.cli import app
from ninfer_tools.migrate.draft import Joined, read_content


def invoke(*arguments):
    return CliRunner().invoke(app, ["migrate", *map(str, arguments)])


def migrate(*arguments):
    result = invoke(*arguments, "--to", 2, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refuse(*arguments):
    result = invoke(*arguments, "--to", 2)
    assert result.exit_code == 1, result.output
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


@pytest.mark.parametrize("key", REGISTERED)
def test_converted_file_becomes_the_registered_version_2_file(tmp_path, key):
    """M-15: objects in other order under other ids end where version 2 wants them."""
    source = save_converted(tmp_path / "new.ninfer", key)
    migrate(source, tmp_path / "old.ninfer")
    new, old = open_artifact(source), open_artifact(tmp_path / "old.ninfer")
    assert tuple(old.objects.values()) == legacy_objects(key)
    for name, binding in list(old.bindings.items())[::37]:
        part, origin = binding.parts[0], new.bindings[name].parts[0]
        assert (part.begin, part.end) == (origin.begin, origin.end)
        data = bytes(old.raw_payload(part.object)[:32])
        assert data == marker(origin.object)[: len(data)]


def test_separate_matrices_are_put_together_plane_by_plane(tmp_path):
    """M-15: query, key, gate and value of the draft layer were stored one by one."""
    source = save_converted(tmp_path / "new.ninfer", "3.8 int", separate="mtp/layers/0/attention/")
    migrate(source, tmp_path / "old.ninfer")
    old = open_artifact(tmp_path / "old.ninfer")
    assert tuple(old.objects.values()) == legacy_objects("3.8 int")
    fused = old.raw_payload("mtp/layer/attention/query_key_gate_value")
    for name, row in {"query": 0, "key": 6144, "gate": 7168, "value": 13312}.items():
        mark = marker(f"own/mtp/layers/0/attention/{name}")
        assert bytes(fused[row * 5120 :][:32]) == mark


@pytest.mark.parametrize("format", ["q4_g64_fp16", "q5_g64_fp16", "q8_g32_fp16", "nvfp4", "bf16"])
def test_joined_rows_decode_to_the_stacked_matrices(tmp_path, format):
    """M-15, on values."""
    from builders.artifact_bytes import entry_bytes, save, small_root

    rng = np.random.default_rng(3)
    matrices = [rng.standard_normal((n, 192), np.float32) for n in (128, 256)]
    if format == "nvfp4":
        for matrix in matrices:
            matrix[0, 0] = 6.0
    encoded = [encode_tensor(matrix, format) for matrix in matrices]
    root, payload = small_root(), b""
    root["objects"], root["bindings"], root["uses"] = [], {}, []
    root["components"] = {"text": {"config": {}}}
    layouts = {"nvfp4": "block_scale_k16_m128x4_v1", "bf16": "contiguous_le_v1"}
    layout = layouts.get(format, "row_split_k128_v1")
    for index, (matrix, data) in enumerate(zip(matrices, encoded, strict=True)):
        payload = payload.ljust(-(-len(payload) // 256) * 256, b"\0")
        root["objects"].append(
            {
                "id": str(index),
                "shape": list(matrix.shape),
                "format": format,
                "layout": layout,
                "offset": len(payload),
                "bytes": len(data),
                "kind": "tensor",
            }
        )
        payload += data.tobytes()
    root["files"][0]["payload_bytes"] = len(payload)
    artifact = open_artifact(save(tmp_path / "x", entry_bytes(root, payload)))
    first, second = artifact.tensors()
    joined = read_content(Joined(((artifact, second, 10, 256), (artifact, first, 0, 128))))
    got = decode_tensor(joined, format, layout, (374, 192))
    want = [decode_tensor(encoded[1], format, layout, (256, 192))[10:]]
    want.append(decode_tensor(encoded[0], format, layout, (128, 192)))
    np.testing.assert_array_equal(got, np.concatenate(want))


def test_unequal_divisors_of_one_projection_are_refused(tmp_path):
    """M-16."""
    source = save_converted(tmp_path / "new.ninfer", "3.8 nvfp4", divisor_step=1)
    message = refuse(source, tmp_path / "old.ninfer")
    assert "version 2 holds one activation divisor" in message
    assert not (tmp_path / "old.ninfer").exists()


def test_per_use_divisors_that_agree_collapse_and_are_reported(tmp_path):
    """M-16, M-18."""
    source = save_converted(tmp_path / "new.ninfer", "3.8 nvfp4")
    lost = migrate(source, tmp_path / "old.ninfer")["lost"]
    assert lost == ["168 per-use divisors collapse to 112", "provenance: converter"]


def test_bytes_that_two_identities_hold_need_a_choice(tmp_path):
    """M-17."""
    source = save_converted(tmp_path / "a.ninfer", "3.6 nvfp4", metadata={"name": "My tune"})
    message = refuse(source, tmp_path / "old.ninfer")
    assert "qwen3.6-27b/nvfp4" in message
    assert "qwen3.8-27b/nvfp4" in message
    assert "--identity" in message
    for identity in ("qwen3.6-27b/nvfp4", "qwen3.8-27b/nvfp4"):
        report = migrate(source, tmp_path / f"{identity[4:7]}.ninfer", "--identity", identity)
        assert report["identity"] == identity
    named = save_converted(tmp_path / "b.ninfer", "3.6 nvfp4")
    assert migrate(named, tmp_path / "c.ninfer")["identity"] == "qwen3.6-27b/nvfp4"


def test_policies_that_version_2_does_not_imply_are_reported(tmp_path):
    """M-18."""
    from builders.sparse_files import converted_draft

    draft, _ = converted_draft("3.8 int")
    uses = tuple(replace(use, activation_policy="AllowA8") for use in draft.uses)
    source = save_converted(tmp_path / "new.ninfer", "3.8 int", uses=uses)
    lost = migrate(source, tmp_path / "old.ninfer")["lost"]
    assert lost[0] == "785 activation policies (version 2 implies its own)"


def test_component_without_a_place_is_named_with_the_way_out(tmp_path):
    """M-19."""
    save_converted(tmp_path / "new.ninfer", "3.8 int dflash2")
    result = invoke(tmp_path / "new.ninfer", tmp_path / "x.ninfer", "--drop", "mtp")
    assert result.exit_code == 0
    message = refuse(tmp_path / "x.ninfer", tmp_path / "old.ninfer")
    assert "component mtp is missing" in message
    assert "mtp/layers/0" not in message


def test_other_formats_have_no_contract(tmp_path):
    """M-19: the reasons are those of the nearest contract."""
    from builders.sparse_files import converted_draft

    draft, _ = converted_draft("3.6 int")
    objects = {item.id: item for item in draft.objects}
    source = save_converted(tmp_path / "new.ninfer", "3.6 int")
    assert len(objects) == 1124
    message = refuse(source, tmp_path / "old.ninfer", "--identity", "qwen3.8-27b/groupwise-int")
    assert "text/token_embedding is q8_g32_fp16 in version 2, stored is q6_g64_fp16" in message
    assert "text/output_head is q8_g32_fp16 in version 2, stored is q6_g64_fp16" in message
