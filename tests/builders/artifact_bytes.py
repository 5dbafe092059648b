"""Artifacts as literal bytes: framing by struct, directories as plain dictionaries."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

ARTIFACT_ID = bytes(range(16))


def compact(root: Any) -> bytes:
    return json.dumps(root, ensure_ascii=False, separators=(",", ":")).encode()


def legacy_bytes(version: int, root: Any, payload: bytes) -> bytes:
    """Frame a version 1 or 2 file: 16-byte prefix, JSON, zeros to 4096, payload."""
    text = root if isinstance(root, bytes) else compact(root)
    head = b"NINFER\0" + bytes([version]) + struct.pack("<Q", len(text)) + text
    return head + bytes(-len(head) % 4096) + payload


def entry_bytes(root: Any, payload: bytes, artifact_id: bytes = ARTIFACT_ID) -> bytes:
    """Frame a version 3 entry: 32-byte prefix, JSON padded with spaces to 4096, payload."""
    text = root if isinstance(root, bytes) else compact(root)
    text += b" " * (-(32 + len(text)) % 4096)
    return b"NINFER\0\3" + struct.pack("<Q", len(text)) + artifact_id + text + payload


def part_bytes(index: int, payload: bytes, artifact_id: bytes = ARTIFACT_ID) -> bytes:
    """Frame a continuation part: 32-byte header, zeros to 4096, payload."""
    head = b"NINPRT\0\3" + struct.pack("<Q", index) + artifact_id
    return head.ljust(4096, b"\0") + payload


def small_legacy_root(version: int = 2) -> dict[str, Any]:
    """The worked example of the container specification."""
    objects = [
        {
            "name": "frontend/tokenizer.json",
            "kind": "resource",
            "encoding": "raw-bytes-v1",
            "offset": 0,
            "bytes": 700,
        },
        {
            "name": "text/final_norm",
            "kind": "tensor",
            "shape": [130],
            "format": "BF16",
            "layout": "contiguous-le-v1",
            "offset": 768,
            "bytes": 260,
        },
        {
            "name": "text/w",
            "kind": "tensor",
            "shape": [2, 130],
            "format": "Q5G64_F16S",
            "layout": "row-split-k128-v1",
            "offset": 1280,
            "bytes": 528,
        },
    ]
    if version == 1:
        return {"model_id": "qwen3.6-27b", "objects": objects}
    identity = {"model_id": "qwen3.8-27b", "weights_id": "groupwise-int"}
    return {"identity": identity, "objects": objects}


def small_root() -> dict[str, Any]:
    """A version 3 directory with one fused matrix, a scalar and a template: the worked example."""
    text = {
        "config": {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "hidden_size": 128,
        },
        "resources": {"chat_template.jinja": "resource/text/chat_template.jinja"},
        "proposal": {"domain": "indexed", "rows": 64},
    }
    return {
        "components": {
            "text": text,
            "mtp": {"config": {"architectures": ["Qwen3_5MTP"]}, "target": "text"},
        },
        "objects": [
            {
                "id": "resource/text/chat_template.jinja",
                "encoding": "raw_bytes_v1",
                "offset": 0,
                "bytes": 300,
                "kind": "resource",
            },
            {
                "id": "weight/000000",
                "shape": [384, 128],
                "format": "q4_g64_fp16",
                "layout": "row_split_k128_v1",
                "offset": 512,
                "bytes": 26112,
                "kind": "tensor",
            },
            {
                "id": "auxiliary/000000",
                "shape": [],
                "format": "fp32",
                "layout": "contiguous_le_v1",
                "offset": 26624,
                "bytes": 4,
                "kind": "tensor",
            },
        ],
        "bindings": {
            "text/layers/3/attention/query": {
                "parts": [{"object": "weight/000000", "range": [0, 32768]}]
            },
            "text/layers/3/attention/key": {
                "parts": [{"object": "weight/000000", "range": [32768, 49152]}]
            },
        },
        "uses": [
            {
                "parameter": "text/layers/3/attention/query",
                "input": "text/layers/3/mixer_input",
                "activation_policy": "A16Only",
            }
        ],
        "metadata": {"name": "demo"},
        "provenance": {"converter": "ninfer-v3", "recipe": "demo", "sources": {}},
        "files": [{"path": None, "payload_bytes": 26628}],
    }


def small_payload() -> bytes:
    """Payload of `small_root`: template text, a matrix of scale 1.0 and codes 0..7, divisor 2.0."""
    template = b"{{ x }}".ljust(300, b" ")
    codes = bytes(range(0x10, 0x18)) * (24576 // 8)
    scales = struct.pack("<e", 1.0) * 768
    return template.ljust(512, b"\0") + codes + scales + struct.pack("<f", 2.0)


def small_legacy_payload() -> bytes:
    """Payload of `small_legacy_root`: a JSON resource, a norm of ones and a zero matrix."""
    resource = b'{"model":"x"}'.ljust(700, b" ").ljust(768, b"\0")
    norm = b"\x80\x3f" * 130
    return (resource + norm).ljust(1280, b"\0") + bytes(528)


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def save_small(folder: Path, version: int = 3) -> Path:
    """Write the worked example of a version and return its path."""
    if version == 3:
        return save(folder / "small.ninfer", entry_bytes(small_root(), small_payload()))
    data = legacy_bytes(version, small_legacy_root(version), small_legacy_payload())
    return save(folder / f"small_v{version}.ninfer", data)


def save_multi_file(folder: Path, name: str = "multi.ninfer", first: int = 8192) -> Path:
    """Write the worked example as an entry and two parts; the matrix straddles all three."""
    payload = small_payload()
    root = small_root()
    second = 12288
    sizes = [first, second, len(payload) - first - second]
    paths = [None, f"{name}.part-0001", f"{name}.part-0002"]
    root["files"] = [
        {"path": path, "payload_bytes": size} for path, size in zip(paths, sizes, strict=True)
    ]
    save(folder / f"{name}.part-0001", part_bytes(1, payload[first : first + second]))
    save(folder / f"{name}.part-0002", part_bytes(2, payload[first + second :]))
    return save(folder / name, entry_bytes(root, payload[:first]))
