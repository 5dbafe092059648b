"""Laws of snapshots: one commit, ranges without weights, the shared cache, offline."""

from __future__ import annotations

import json
import struct

import pytest
from huggingface_hub import constants

from builders.hub_server import Fault
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.hub.reference import HubReference, parse_reference
from ninfer_tools.hub.snapshot import open_snapshot

REPOSITORY = "Qwen/Tiny"
HEADER = b'{"w":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}   '
SHARD = struct.pack("<Q", len(HEADER)) + HEADER + bytes(100_000)
FILES = {
    "config.json": b'{"model_type": "qwen3_5"}',
    "model-1.safetensors": SHARD,
    "model-2.safetensors": SHARD[:-1],
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}
    ).encode(),
    "extra/notes.md": b"notes",
}
WEIGHTS = ["*.json", "*.safetensors"]


@pytest.fixture
def commit(hub):
    return hub.commit(REPOSITORY, FILES)


def opened(**options):
    return open_snapshot(parse_reference(f"{REPOSITORY}@main"), **options)


def test_branch_is_resolved_printed_and_recorded(hub, commit):
    """P-2."""
    snapshot = opened()
    assert snapshot.describe() == f"{REPOSITORY}@main is commit {commit}"
    assert snapshot.as_record() == {
        "repository": REPOSITORY,
        "revision": "main",
        "commit": commit,
        "pinned": False,
    }


def test_required_pin_refuses_a_branch_and_names_its_commit(hub, commit):
    """P-2."""
    with pytest.raises(UsageError, match=f"write {REPOSITORY}@{commit}"):
        opened(require_pinned=True)
    pinned = open_snapshot(HubReference(REPOSITORY, commit), require_pinned=True)
    assert pinned.as_record()["pinned"] is True


def test_listing_has_sizes_and_digests_across_pages(hub, commit):
    """P-3."""
    hub.page_entries = 2
    files = opened().files
    assert {name: file.bytes for name, file in files.items()} == {
        name: len(data) for name, data in FILES.items()
    }
    assert len(files["model-1.safetensors"].sha256) == 64
    assert len(files["config.json"].git_blob) == 40


def test_branch_that_moves_meanwhile_changes_nothing(hub, commit):
    """P-3."""
    hub.commit(REPOSITORY, {**FILES, "config.json": b"{}"}, branch="next")
    hub.move_after_listing(REPOSITORY, "main", hub.repositories[REPOSITORY].branches["next"])
    snapshot = opened()
    assert hub.repositories[REPOSITORY].branches["main"] != commit
    assert snapshot.read("config.json") == FILES["config.json"]
    assert (snapshot.download(WEIGHTS) / "config.json").read_bytes() == FILES["config.json"]


def test_header_is_read_without_a_byte_of_weights(hub, commit):
    """P-5."""
    assert opened().read_header("model-1.safetensors") == HEADER
    assert hub.sent("model-1.safetensors") == 8 + len(HEADER)


def test_header_from_a_server_without_ranges_still_stops_early(hub, commit):
    """P-5."""
    hub.fail("model-1.safetensors", *[Fault(whole=True)] * 2)
    assert opened().read_header("model-1.safetensors") == HEADER


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n", "git-lfs"),
        (b"", "an empty file"),
        (b"1234567", "an unknown file"),
        (b"\xff" * 100, "an unknown file"),
        (b"<html>please log in</html>", "an HTML"),
        (struct.pack("<Q", 93) + b"{" + bytes(91), "a safetensors file"),
        (struct.pack("<Q", 1) + b"{" + bytes(91), "a safetensors file"),
    ],
)
def test_file_without_a_header_is_named_for_what_it_is(hub, content, message):
    """P-5; no memory is taken for the declared length (case 47)."""
    hub.commit(REPOSITORY, {"model.safetensors": content})
    with pytest.raises(NinferError, match=message):
        opened().read_header("model.safetensors")


def test_cached_file_is_read_without_the_hub(hub, commit):
    """P-4."""
    snapshot = opened()
    snapshot.download(["*.json"])
    before = len(hub.requests)
    assert snapshot.read("config.json") == FILES["config.json"]
    assert len(hub.requests) == before


def test_interrupted_range_is_asked_again(hub, commit, pauses):
    """P-5."""
    hub.fail("config.json", Fault(status=503), Fault(cut=3))
    assert opened().read("config.json") == FILES["config.json"]
    assert pauses == [1, 2]


def test_small_file_is_checked_against_its_digest(hub, commit):
    """P-13."""
    hub.fail("config.json", Fault(content=bytes(len(FILES["config.json"]))))
    with pytest.raises(NinferError, match="does not have its digest"):
        opened().read("config.json")


def test_download_brings_only_what_is_asked(hub, commit):
    """P-4: and nothing twice."""
    folder = opened().download(WEIGHTS)
    assert (folder / "model-1.safetensors").read_bytes() == SHARD
    assert not (folder / "extra").exists()
    sent = hub.sent("model-1.safetensors")
    opened().download(WEIGHTS)
    assert hub.sent("model-1.safetensors") == sent == len(SHARD)


def test_download_survives_a_cut_connection(hub, commit, monkeypatch):
    """P-4."""
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    hub.fail("model-1.safetensors", Fault(cut=40_000))
    folder = opened().download(["model-1.safetensors"])
    assert (folder / "model-1.safetensors").read_bytes() == SHARD
    assert hub.sent("model-1.safetensors") == 40_000 + len(SHARD)


def test_named_file_that_the_commit_lacks_is_bad_usage(hub, commit):
    """P-4."""
    with pytest.raises(UsageError, match=r"no such file .*got absent\.json"):
        opened().download(["absent.json"])


def test_complete_cache_serves_offline(hub, commit, monkeypatch):
    """P-4 (case 50)."""
    folder = opened().download(WEIGHTS)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    snapshot = opened()
    assert (snapshot.commit, snapshot.online) == (commit, False)
    assert "(from the local cache alone)" in snapshot.describe()
    assert snapshot.download(WEIGHTS) == folder
    assert snapshot.read_header("model-2.safetensors") == HEADER


def test_partial_cache_offline_names_the_missing_files(hub, commit, monkeypatch):
    """P-4 (case 50)."""
    opened().download(["*.json", "model-1*"])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NinferError, match=r"missing: model-2\.safetensors;") as caught:
        opened().download(WEIGHTS)
    assert "unset HF_HUB_OFFLINE" in str(caught.value)


def test_partial_cache_of_another_program_names_the_missing_shards(hub, commit, monkeypatch):
    """P-4: without a listing the checkpoint's own index says what belongs to it."""
    from huggingface_hub import hf_hub_download

    for name in ("config.json", "model.safetensors.index.json", "model-2.safetensors"):
        hf_hub_download(REPOSITORY, name, revision="main")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NinferError, match=r"missing: tokenizer\.json, model-1\.safetensors;"):
        opened().download([*WEIGHTS, "tokenizer.json"])


def test_stopped_hub_falls_back_to_the_cache(hub, commit, monkeypatch):
    """P-4: no network is like offline mode."""
    folder = opened().download(WEIGHTS)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert opened().download(WEIGHTS) == folder


def test_nothing_cached_and_no_network_is_one_line(hub, monkeypatch):
    """P-4."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(NinferError, match="offline mode is on") as caught:
        opened()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        (f"{REPOSITORY}@absent", 2, "no such revision"),
        ("Qwen/Absent@main", 2, "no such repository, or it is private"),
        ("Qwen/Gated@main", 1, "access to this repository must be granted"),
        (f"{REPOSITORY}@{'0' * 40}", 2, "no such revision"),
    ],
)
def test_refusal_of_the_hub_is_one_line(hub, commit, reference, code, message):
    """P-18."""
    hub.commit("Qwen/Gated", FILES)
    hub.repositories["Qwen/Gated"].token = "secret"
    hub.repositories["Qwen/Gated"].gated = True
    with pytest.raises(NinferError, match=message) as caught:
        open_snapshot(parse_reference(reference))
    assert caught.value.exit_code == code
    assert "\n" not in str(caught.value)


def test_login_page_for_the_api_is_one_line(hub, commit):
    """P-12."""
    hub.api_html = True
    with pytest.raises(NinferError, match="not that of a model hub"):
        opened()


def test_listing_never_takes_the_token_to_another_host(hub, commit, monkeypatch):
    """P-16."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.page_entries = 2
    monkeypatch.setattr(type(hub), "url", property(lambda self: self.content_url))
    with pytest.raises(NinferError, match="not that of a model hub"):
        opened()
    assert [item for item in hub.requests if item.host == "content"] == []
