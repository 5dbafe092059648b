"""Laws of files and parts: `specs/container.md`, rules F-1 to F-5."""

from __future__ import annotations

import os

import pytest

from builders.artifact_bytes import part_bytes, save, save_multi_file, save_small, small_payload
from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.reader import open_artifact


def test_matrix_that_straddles_files_reads_like_one(tmp_path):
    """F-1."""
    one = open_artifact(save_small(tmp_path))
    many = open_artifact(save_multi_file(tmp_path))
    for name in one.objects:
        assert many.payload_of(name).tobytes() == one.payload_of(name).tobytes()
    assert many.file_bytes == one.file_bytes + 2 * 4096


def test_object_inside_one_file_is_a_view(tmp_path):
    artifact = open_artifact(save_multi_file(tmp_path))
    assert not artifact.payload_of("resource/text/chat_template.jinja").flags.owndata
    assert artifact.payload_of("weight/000000").flags.owndata


def test_payload_views_are_read_only(tmp_path):
    artifact = open_artifact(save_small(tmp_path))
    with pytest.raises(ValueError):
        artifact.payload_of("weight/000000")[0] = 1


def test_missing_part_fails_at_the_first_read_inside_it(tmp_path):
    """F-2."""
    path = save_multi_file(tmp_path)
    (tmp_path / "multi.ninfer.part-0002").unlink()
    artifact = open_artifact(path)
    assert artifact.payload_of("resource/text/chat_template.jinja").size == 300
    with pytest.raises(ArtifactError, match="part is missing"):
        artifact.payload_of("weight/000000")


def test_swapped_foreign_and_cut_parts_are_refused(tmp_path):
    """F-3."""
    path = save_multi_file(tmp_path)
    payload = small_payload()[8192 : 8192 + 12288]
    part = tmp_path / "multi.ninfer.part-0001"
    for data in (part_bytes(2, payload), part_bytes(1, payload, bytes(16)), bytes(4096) + payload):
        save(part, data)
        with pytest.raises(ArtifactError, match="does not belong to this entry"):
            open_artifact(path).payload_of("weight/000000")
    for data in (part_bytes(1, payload)[:-1], part_bytes(1, payload) + b"x", b""):
        save(part, data)
        with pytest.raises(ArtifactError, match="directory says 16384"):
            open_artifact(path).payload_of("weight/000000")


def test_bytes_of_a_part_header_behind_the_id_are_ignored(tmp_path):
    """F-3."""
    path = save_multi_file(tmp_path)
    part = tmp_path / "multi.ninfer.part-0001"
    data = bytearray(part.read_bytes())
    data[32:4096] = b"\xee" * 4064
    save(part, bytes(data))
    assert open_artifact(path).payload_of("weight/000000").size == 26112


def test_part_outside_the_folder_is_refused(tmp_path):
    """F-4: a link must not lead out of the folder of the entry."""
    path = save_multi_file(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    part = tmp_path / "multi.ninfer.part-0001"
    part.rename(tmp_path / "elsewhere" / "p")
    part.symlink_to(tmp_path / "elsewhere" / "p")
    with pytest.raises(ArtifactError, match="leaves the folder"):
        open_artifact(path).payload_of("weight/000000")


def test_part_that_is_a_pipe_is_refused(tmp_path):
    path = save_multi_file(tmp_path)
    part = tmp_path / "multi.ninfer.part-0001"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(NinferError, match="not a regular file"):
        open_artifact(path).payload_of("weight/000000")


def test_download_cache_of_links_into_one_blob_folder_opens(tmp_path):
    """F-4: entry and parts are links into the same folder of blobs."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    save_multi_file(blobs)
    for number, item in enumerate(sorted(blobs.iterdir())):
        blob = item.rename(blobs / f"blob{number}")
        (snapshot / item.name).symlink_to(blob)
    assert open_artifact(snapshot / "multi.ninfer").payload_of("weight/000000").size == 26112


def test_entry_may_be_renamed_but_parts_may_not(tmp_path):
    """F-5."""
    path = save_multi_file(tmp_path)
    renamed = path.rename(tmp_path / "other.ninfer")
    assert open_artifact(renamed).payload_of("weight/000000").size == 26112
    (tmp_path / "multi.ninfer.part-0001").rename(tmp_path / "other.ninfer.part-0001")
    with pytest.raises(ArtifactError, match="part is missing"):
        open_artifact(renamed).payload_of("weight/000000")
