"""Laws of planning: `specs/container.md`, C-5, C-7, D-5, F-6."""

from __future__ import annotations

import json

import pytest

from builders.artifact_bytes import small_root
from builders.drafts import small_draft
from ninfer_formats.directory import Identity
from ninfer_formats.errors import UsageError
from ninfer_formats.write_plan import (
    DirectoryDraft,
    make_tensor,
    place_objects,
    plan_v2,
    plan_v3,
    split_payload,
)


def directory_text(plan):
    header = plan.files[0].header
    return header[32:] if plan.version == 3 else header[16:]


def test_objects_are_placed_as_in_the_worked_example():
    """D-5: the resource at 0, the matrix at up(300, 256), the scalar on the next 256."""
    assert [item.offset for item in small_draft().objects] == [0, 512, 26624]


def test_members_stand_in_the_order_of_the_writer():
    text = directory_text(plan_v3(small_draft(), "x")).rstrip(b" ")
    assert text.startswith(b'{"components":{"text":{"config":{"architectures"')
    assert (
        b'{"id":"weight/000000","shape":[384,128],"format":"q4_g64_fp16",'
        b'"layout":"row_split_k128_v1","offset":512,"bytes":26112,"kind":"tensor"}' in text
    )
    assert (
        b'{"id":"resource/text/chat_template.jinja","encoding":"raw_bytes_v1",'
        b'"offset":0,"bytes":300,"kind":"resource"}' in text
    )
    assert list(json.loads(text)) == [
        "components",
        "objects",
        "bindings",
        "uses",
        "metadata",
        "provenance",
        "files",
    ]
    assert text.endswith(b'"files":[{"path":null,"payload_bytes":26628}]}')
    assert json.loads(text)["uses"] == small_root()["uses"]
    assert json.loads(text)["bindings"] == small_root()["bindings"]


def test_json_is_padded_with_spaces_to_the_payload_start():
    """C-5."""
    (file,) = plan_v3(small_draft(), "x").files
    assert file.start == len(file.header) == 4096
    assert int.from_bytes(file.header[8:16], "little") == 4096 - 32
    text = file.header[32:]
    assert text.endswith(b" " * 100)
    assert text.rstrip(b" ").endswith(b'"files":[{"path":null,"payload_bytes":26628}]}')


def test_non_ascii_text_is_written_raw():
    assert "モデル".encode() in plan_v3(small_draft("モデル"), "x").files[0].header


def test_artifact_id_follows_from_the_content_plan():
    """C-7: equal plans give equal ids; name, salt and contents change them; UUID 4 bits are set."""
    ids = [
        plan_v3(small_draft(*names), "x", salt=salt).files[0].header[16:32]
        for names, salt in (((), b""), ((), b""), (("other",), b""), ((), b"1"))
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert ids[0][6] >> 4 == 4
    assert ids[0][8] >> 6 == 0b10


def test_version_2_prefix_and_names():
    identity = Identity("qwen3.8-27b", "groupwise-int")
    plan = plan_v2(identity, small_draft().objects, "x")
    text = directory_text(plan)
    assert text.startswith(
        b'{"identity":{"model_id":"qwen3.8-27b","weights_id":"groupwise-int"},"objects":[{"name":'
        b'"resource/text/chat_template.jinja","kind":"resource","encoding":"raw-bytes-v1",'
        b'"offset":0,"bytes":300},{"name":"weight/000000","kind":"tensor","shape":[384,128],'
        b'"format":"Q4G64_F16S","layout":"row-split-k128-v1","offset":512,"bytes":26112}'
    )
    assert plan.files[0].start == 4096
    assert plan.bytes == 4096 + 26628


def test_payload_that_fits_stays_in_one_file():
    assert [item.payload_bytes for item in split_payload("x", 4096, 100, 4196)] == [100]


def test_files_are_filled_to_whole_pages_and_named_in_order():
    """F-6: limit 20,000: the entry takes 12,288 behind 4,096, parts take 12,288."""
    files = split_payload("x.ninfer", 4096, 30_000, 20_000)
    assert [item.payload_bytes for item in files] == [12288, 12288, 30_000 - 2 * 12288]
    assert [item.path for item in files] == [None, "x.ninfer.part-0001", "x.ninfer.part-0002"]


def test_parts_carry_index_and_artifact_id():
    """F-6, F-3."""
    plan = plan_v3(small_draft(), "x", max_file_bytes=20_000)
    assert [item.payload_bytes for item in plan.files] == [12288, 12288, 2052]
    assert [item.begin for item in plan.files] == [0, 12288, 24576]
    assert plan.files[2].header[:16].hex() == "4e494e50525400030200000000000000"
    assert plan.files[2].header[16:32] == plan.files[0].header[16:32]


def test_file_limit_below_the_directory_is_refused():
    with pytest.raises(UsageError, match="too small"):
        plan_v3(small_draft(), "x", max_file_bytes=8000)


def test_reserve_grows_when_the_list_of_files_crosses_a_page():
    """F-6: with hundreds of parts the JSON itself needs a second page."""
    draft = small_draft()
    objects = place_objects([*draft.objects, make_tensor("weight/000001", [2**21], "bf16")])
    plan = plan_v3(
        DirectoryDraft(draft.components, objects, draft.bindings, draft.uses), "x", 40_000
    )
    header = plan.files[0].header
    assert len(header) % 4096 == 0
    assert len(header) > 4096
    files = json.loads(header[32:])["files"]
    assert [item["payload_bytes"] for item in files] == [f.payload_bytes for f in plan.files]
    assert sum(item["payload_bytes"] for item in files) == objects[-1].end
    assert all(item.bytes <= 40_000 for item in plan.files)


def test_parts_are_not_named_after_a_name_that_is_no_text():
    """F-6: part names stand in the JSON; undecodable bytes of a path cannot."""
    with pytest.raises(UsageError, match="no plain text"):
        split_payload("\udcff.ninfer", 4096, 100_000, 20_000)
