"""Laws of the listings: everything stored is listed once, filtered by name."""

from __future__ import annotations

import hashlib

from builders.artifact_bytes import (
    legacy_bytes,
    save,
    save_small,
    small_legacy_payload,
    small_legacy_root,
)
from ninfer_formats.inventories.published import PINNED_RESOURCES
from ninfer_tools.inspection import listing


def test_objects_have_these_members(tmp_path, inspect):
    record = inspect(save_small(tmp_path), "--objects", "*", "--json").record
    assert record["objects"][1] == {
        "id": "weight/000000",
        "kind": "tensor",
        "shape": [384, 128],
        "format": "q4_g64_fp16",
        "layout": "row_split_k128_v1",
        "encoding": None,
        "offset": 512,
        "bytes": 26112,
        "group": "text",
    }
    assert record["objects"][0]["encoding"] == "raw_bytes_v1"
    assert record["objects"][2]["group"] is None


def test_glob_filters_objects_by_id(tmp_path, inspect):
    answer = inspect(save_small(tmp_path), "--objects", "weight/*")
    assert answer.code == 0
    assert answer.out.split()[:4] == ["weight/000000", "[384,", "128]", "q4_g64_fp16"]
    assert answer.out.count("\n") == 1


def test_nothing_found_is_said_with_exit_1(tmp_path, inspect):
    path = save_small(tmp_path)
    assert inspect(path, "--objects", "W*") == (1, "no object matches W*\n", "")
    assert inspect(path, "--parameters", "W*") == (1, "no parameter matches W*\n", "")
    assert inspect(path, "--objects", "W*", "--json").record["objects"] == []


def test_parameters_have_shape_formats_and_parts(tmp_path, inspect):
    path = save_small(tmp_path)
    record = inspect(path, "--parameters", "*/key", "--json").record
    assert record["parameters"] == [
        {
            "name": "text/layers/3/attention/key",
            "shape": [128, 128],
            "formats": ["q4_g64_fp16"],
            "parts": [{"object": "weight/000000", "begin": 32768, "end": 49152}],
        }
    ]
    out = inspect(path, "--parameters", "*/key").out
    assert out.split()[-1] == "weight/000000[32768:49152]"


def test_whole_objects_are_listed_without_a_range(tmp_path, inspect):
    answer = inspect(save_small(tmp_path, 2), "--parameters", "text/*")
    assert answer.code == 1  # the shape of the small file's norm is not the registered one
    path = save_small(tmp_path)
    assert "weight/000000[0:32768]" in inspect(path, "--parameters", "*/query").out


def test_parameters_of_an_unregistered_identity_are_not_known(tmp_path, inspect):
    root = small_legacy_root()
    root["identity"]["model_id"] = "other"
    path = save(tmp_path / "m.ninfer", legacy_bytes(2, root, small_legacy_payload()))
    answer = inspect(path, "--parameters", "*")
    assert answer.code == 1
    assert "identity other/groupwise-int is not registered" in answer.out


def test_resources_have_role_bytes_and_sha256(tmp_path, inspect):
    path = save_small(tmp_path)
    template = b"{{ x }}".ljust(300, b" ")
    assert inspect(path, "--resources", "--json").record["resources"] == [
        {
            "component": "text",
            "role": "chat_template.jinja",
            "id": "resource/text/chat_template.jinja",
            "bytes": 300,
            "sha256": hashlib.sha256(template).hexdigest(),
            "official": [],
        }
    ]
    assert hashlib.sha256(template).hexdigest()[:16] in inspect(path, "--resources").out


def test_official_file_is_told_by_its_pinned_hash(tmp_path, inspect, monkeypatch):
    digest = hashlib.sha256(b"{{ x }}".ljust(300, b" ")).hexdigest()
    pins = {
        "qwen3.6": {"chat_template.jinja": "0" * 64},
        "qwen3.8": {"chat_template.jinja": digest},
    }
    monkeypatch.setattr(listing, "PINNED_RESOURCES", pins)
    assert inspect(save_small(tmp_path), "--resources").out.endswith("official qwen3.8\n")


def test_file_of_several_releases_is_official_in_all_of_them():
    digest = PINNED_RESOURCES["qwen3.6"]["generation_config.json"]
    assert listing._official("generation_config.json", digest) == ["qwen3.6", "qwen3.8"]
    assert listing._official("tokenizer.json", digest) == []


def test_synthetic_resources_have_no_digest(inspect):
    spec = "qwen3.5-0.8b:bf16:layers=1:vocab=600:components=text"
    record = inspect("--synthetic", spec, "--resources", "--json").record
    assert {item["sha256"] for item in record["resources"]} == {None}
