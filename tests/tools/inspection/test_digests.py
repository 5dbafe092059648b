"""Laws of `--digest`: every object and file hashed whole, and only a hash confirms."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from builders.artifact_bytes import save_multi_file, save_small, small_payload
from ninfer_formats.inventories import published
from ninfer_formats.reader import open_artifact
from ninfer_tools.inspection import digests, recognition
from ninfer_tools.inspection.digests import compute_digests

PAYLOAD = small_payload()
SPANS = {
    "resource/text/chat_template.jinja": (0, 300),
    "weight/000000": (512, 26624),
    "auxiliary/000000": (26624, 26628),
}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("chunk", [1, 7, 300, 4096, 1 << 20])
@pytest.mark.parametrize("parts", [False, True])
def test_objects_and_files_are_hashed_whole(tmp_path, monkeypatch, chunk, parts):
    monkeypatch.setattr(digests, "_CHUNK_BYTES", chunk)
    if chunk < 300:
        # Chunk by chunk this small, the threads would take minutes.
        monkeypatch.setattr(digests, "ThreadPoolExecutor", InPlace)
    path = save_multi_file(tmp_path) if parts else save_small(tmp_path)
    seen = []
    found = compute_digests(open_artifact(path), seen.append)
    assert found.objects == {name: sha(PAYLOAD[a:b]) for name, (a, b) in SPANS.items()}
    assert found.files == {p.name: sha(p.read_bytes()) for p in sorted(tmp_path.iterdir())}
    assert sum(seen) == sum(p.stat().st_size for p in tmp_path.iterdir())


class InPlace:
    """An executor that works at once."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work, data):
        work(data)
        return self

    def result(self) -> None:
        pass


def test_json_has_objects_files_directory_and_match(tmp_path, inspect):
    path = save_small(tmp_path)
    answer = inspect(path, "--digest", "--json")
    assert answer.code == 0
    record = answer.record["digest"]
    assert list(record) == ["objects", "files", "directory", "published"]
    assert record["files"] == {path.name: sha(path.read_bytes())}
    prefix = open_artifact(path).prefix
    text = path.read_bytes()[32 : 32 + prefix.json_bytes]
    assert record["directory"] == sha(text)
    assert record["published"] == []


def test_text_is_what_sha256sum_prints(tmp_path, inspect):
    path = save_small(tmp_path)
    assert f"{sha(path.read_bytes())}  {path.name}\n" in inspect(path, "--digest").out


def publish_as(monkeypatch, **facts):
    """Let the list of published artifacts hold one made-up entry."""
    item = replace(published.PUBLISHED[0], **facts)
    monkeypatch.setattr(recognition, "PUBLISHED", (item,))
    monkeypatch.setattr(published, "PUBLISHED", (item,))


def test_only_an_equal_hash_confirms(tmp_path, inspect, monkeypatch):
    path = save_small(tmp_path)
    size = path.stat().st_size
    publish_as(monkeypatch, bytes=size, version=3, objects=3, sha256=sha(path.read_bytes()))
    assert inspect(path, "--json").record["recognised"][0]["confirmed"] is False
    (match,) = inspect(path, "--digest", "--json").record["digest"]["published"]
    assert match["confirmed"] is True
    assert match["text"].startswith("is neroued/Qwen3.6-27B-NInfer")


def test_same_size_with_another_hash_is_another_file(tmp_path, inspect, monkeypatch):
    path = save_small(tmp_path)
    publish_as(monkeypatch, bytes=path.stat().st_size, version=3, objects=3, sha256="0" * 64)
    answer = inspect(path, "--digest", "--json")
    (match,) = answer.record["digest"]["published"]
    assert match["confirmed"] is False
    assert match["text"].endswith("this is another file")


def test_same_size_without_a_known_hash_stays_open(tmp_path, inspect, monkeypatch):
    path = save_small(tmp_path)
    publish_as(monkeypatch, bytes=path.stat().st_size, version=3, objects=3, sha256=None)
    (match,) = inspect(path, "--digest", "--json").record["digest"]["published"]
    assert match["text"].endswith("whose SHA-256 is not known")


def test_missing_part_is_an_error(tmp_path, inspect):
    path = save_multi_file(tmp_path)
    (tmp_path / "multi.ninfer.part-0001").unlink()
    answer = inspect(path, "--digest")
    assert answer.code == 1 and "part is missing" in answer.err
