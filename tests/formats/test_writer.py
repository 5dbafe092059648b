"""Laws of writing: what is planned is written, in any order, whole or not at all."""

from __future__ import annotations

import os

import numpy as np
import pytest

from builders.artifact_bytes import entry_bytes, save_small, small_payload, small_root
from builders.drafts import small_draft
from ninfer_formats.directory import Proposal
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.reader import open_artifact
from ninfer_formats.write_plan import plan_v3
from ninfer_formats.writer import write_artifact

PAYLOAD = small_payload()


def pieces(plan):
    return {name: PAYLOAD[item.offset : item.end] for name, item in plan.objects.items()}


@pytest.mark.parametrize("max_file_bytes", [10**9, 20_000, 8192])
def test_written_artifact_reads_back(tmp_path, max_file_bytes):
    plan = plan_v3(small_draft(), "x.ninfer", max_file_bytes)
    path = tmp_path / "x.ninfer"
    with write_artifact(plan, path) as writer:
        for name, data in reversed(pieces(plan).items()):
            writer.write(name, data)
    artifact = open_artifact(path)
    assert len(artifact.files) == len(plan.files)
    assert sum(item.stat().st_size for item in tmp_path.iterdir()) == plan.bytes
    for name, data in pieces(plan).items():
        assert artifact.payload_of(name).tobytes() == data


def test_single_file_equals_independent_framing(tmp_path):
    """The bytes are those of the builder that shares no code with the writer."""
    draft = small_draft()
    text = draft.components[0]
    components = (
        type(text)("text", text.config, None, text.resources, Proposal("indexed", 64)),
        type(text)("mtp", {"architectures": ["Qwen3_5MTP"]}, "text"),
    )
    draft = type(draft)(
        components, draft.objects, draft.bindings, draft.uses, draft.metadata, draft.provenance
    )
    plan = plan_v3(draft, "x.ninfer", artifact_id=bytes(range(16)))
    with write_artifact(plan, tmp_path / "x.ninfer") as writer:
        for name, data in pieces(plan).items():
            writer.write(name, data)
    assert (tmp_path / "x.ninfer").read_bytes() == entry_bytes(small_root(), PAYLOAD)


def test_objects_may_be_written_in_chunks_and_copied_from_files(tmp_path):
    plan = plan_v3(small_draft(), "x.ninfer", 20_000)
    source = os.open(save_small(tmp_path), os.O_RDONLY)
    seen = []
    with write_artifact(plan, tmp_path / "x.ninfer", progress=seen.append) as writer:
        item = plan.objects["weight/000000"]
        data = np.frombuffer(PAYLOAD, np.uint8)[item.offset : item.end]
        for begin in range(0, item.bytes, 5000):
            writer.write("weight/000000", data[begin : begin + 5000], begin)
        writer.copy("resource/text/chat_template.jinja", source, 4096, 300)
        writer.copy("auxiliary/000000", source, 4096 + 26624, 4)
    os.close(source)
    assert sum(seen) == 300 + 26112 + 4
    artifact = open_artifact(tmp_path / "x.ninfer")
    for name, want in pieces(plan).items():
        assert artifact.payload_of(name).tobytes() == want


def test_run_of_objects_is_copied_with_its_gaps(tmp_path):
    plan = plan_v3(small_draft(), "x.ninfer", 20_000)
    source = os.open(save_small(tmp_path), os.O_RDONLY)
    with write_artifact(plan, tmp_path / "x.ninfer") as writer:
        writer.copy_objects("resource/text/chat_template.jinja", "auxiliary/000000", source, 4096)
    os.close(source)
    assert open_artifact(tmp_path / "x.ninfer").payload.read(0, 26628).tobytes() == PAYLOAD


def test_object_left_out_publishes_nothing(tmp_path):
    plan = plan_v3(small_draft(), "x.ninfer")
    with (
        pytest.raises(NinferError, match="not written in full"),
        write_artifact(plan, tmp_path / "x.ninfer") as writer,
    ):
        writer.write("weight/000000", PAYLOAD[512:26624])
    assert list(tmp_path.iterdir()) == []


def test_writing_past_an_object_is_refused(tmp_path):
    plan = plan_v3(small_draft(), "x.ninfer")
    with (
        pytest.raises(NinferError, match="more bytes than planned"),
        write_artifact(plan, tmp_path / "x.ninfer") as writer,
    ):
        writer.write("auxiliary/000000", b"12345")
    assert list(tmp_path.iterdir()) == []


def test_existing_output_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "x.ninfer").write_text("mine")
    plan = plan_v3(small_draft(), "x.ninfer")
    with pytest.raises(UsageError, match="exists"), write_artifact(plan, tmp_path / "x.ninfer"):
        pass
    assert (tmp_path / "x.ninfer").read_text() == "mine"
