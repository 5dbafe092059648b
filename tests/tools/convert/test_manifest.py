"""`convert --manifest`: the manifest is what was written, and what `ninfer pull` verifies."""

from __future__ import annotations

import hashlib
import json

import pytest
from huggingface_hub import close_session, constants

from builders.checkpoints import build_checkpoint
from builders.conversions import convert
from builders.hub_server import HubServer
from builders.tiny_contracts import ROWS, shrink_contracts
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.reader import open_artifact
from ninfer_tools import pull
from ninfer_tools.convert import manifest

REPOSITORY, NAME, FILE = "someone/Model-NInfer", "a.ninfer", "artifact-manifest.json"


@pytest.fixture
def folder(tmp_path):
    return build_checkpoint().write(tmp_path / "Tiny", 2)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "o").mkdir()
    return tmp_path / "o" / NAME


@pytest.fixture
def server(tmp_path, monkeypatch):
    with HubServer() as found:
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        yield found
        close_session()


def read(out):
    return json.loads(out.with_name(FILE).read_text())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(to, capsys):
    """Pull the only artifact of the repository; return the record that is printed."""
    capsys.readouterr()
    options = {"container": None, "drafter": None, "weights": None, "force": False}
    target = f"{REPOSITORY}@main"
    assert pull.run(target=target, files=[], to=to, json_output=True, **options) == 0
    return json.loads(capsys.readouterr().out)


def test_pull_verifies_a_published_folder_against_it(folder, out, server, tmp_path, capsys):
    """V-145 and P-13."""
    assert convert(folder, out, manifest=True) == 0
    files = {p.name: p.read_bytes() for p in out.parent.iterdir()}
    server.commit(REPOSITORY, files)
    (record,) = fetch(tmp_path / "to", capsys)["files"]
    assert record["verified_by"] == ["hub", FILE]
    assert (tmp_path / "to" / NAME).read_bytes() == out.read_bytes()


def test_pull_refuses_another_file_under_the_name(folder, out, server, tmp_path, capsys):
    """V-145 and P-13."""
    assert convert(folder, out, manifest=True) == 0
    changed = bytearray(out.read_bytes())
    changed[-1] ^= 1
    files = {NAME: bytes(changed), FILE: out.with_name(FILE).read_bytes()}
    server.commit(REPOSITORY, files)
    with pytest.raises(NinferError, match=f"{FILE} and hub name different contents"):
        fetch(tmp_path / "to", capsys)


def test_manifest_says_what_was_written(folder, out):
    """V-145: files, identity, sources without local paths, inventory."""
    assert convert(folder, out, manifest=True, max_file_bytes=300_000) == 0
    record, artifact = read(out), open_artifact(out)
    assert (record["schema"], record["schema_version"]) == ("ninfer.artifact-manifest", 2)
    names = [NAME, *(file.path for file in artifact.files[1:])]
    assert len(names) > 1
    found = record["artifact"]
    assert found["files"] == [
        {
            "filename": name,
            "bytes": out.with_name(name).stat().st_size,
            "sha256": sha256(out.with_name(name)),
        }
        for name in names
    ]
    assert {key: found[key] for key in ("filename", "bytes", "sha256")} == found["files"][0]
    assert found["artifact_id"] == artifact.prefix.artifact_id.hex()
    assert (found["container_version"], found["architecture"]) == (3, "qwen3_5")
    assert (found["name"], found["components"]) == ("Tiny", ["text", "mtp", "vision"])
    source = record["source"]["base"]
    assert source["folder"] == "Tiny"
    weights = "model-00001-of-00002.safetensors"
    assert source["files"][weights]["sha256"] == sha256(folder / weights)
    assert str(folder.parent) not in out.with_name(FILE).read_text()
    counts = record["inventory"]
    assert counts["objects"] == len(artifact.objects) == counts["tensors"] + 6
    assert (counts["bindings"], counts["uses"]) == (len(artifact.bindings), len(artifact.uses))
    assert sum(counts["formats"].values()) == counts["tensors"]
    sizes = counts["bytes"]
    assert sizes["object"] == sum(item.bytes for item in artifact.objects.values())
    assert sizes["payload_span"] == sizes["object"] + sizes["alignment"]


def test_version_2_has_the_older_schema(tmp_path, out, monkeypatch):
    """V-145."""
    shrink_contracts(monkeypatch.setattr)
    folder = build_checkpoint().write(tmp_path / "Qwen3.8-27B")
    options = {"container": 2, "profile": "groupwise-int", "proposal_rows": ROWS}
    assert convert(folder, out, manifest=True, **options) == 0
    record = read(out)
    assert record["schema_version"] == 1
    names = ("container_version", "model_id", "weights_id")
    assert [record["artifact"][n] for n in names] == [2, "qwen3.8-27b", "groupwise-int"]
    assert "bindings" not in record["inventory"] and "artifact_id" not in record["artifact"]


def test_manifest_is_never_overwritten_unasked(folder, out, capsys):
    """V-146: refused before work; an old one goes when its file is replaced, or is called stale."""
    out.with_name(FILE).write_text("{}")
    with pytest.raises(UsageError, match="exists"):
        convert(folder, out, manifest=True)
    assert not out.exists()
    assert convert(folder, out, manifest=True, force=True) == 0
    first = read(out)["artifact"]["sha256"]
    assert convert(folder, out, force=True, profile="bf16") == 0
    assert "describes the replaced file; --manifest renews it" in capsys.readouterr().err
    assert convert(folder, out, force=True, profile="bf16", manifest=True) == 0
    assert read(out)["artifact"]["sha256"] == sha256(out) != first


def test_artifact_whose_manifest_cannot_be_written_is_not_published(folder, out, monkeypatch):
    """V-146 and V-170: all files or none, and the work is kept."""

    def fail(path, advance):
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "hash_file", fail)
        with pytest.raises(OSError, match="Input/output error"):
            convert(folder, out, manifest=True)
    assert [p for p in out.parent.iterdir() if p.is_file()] == []
    assert convert(folder, out, manifest=True, resume=True) == 0
    names = [NAME, f"{NAME}.conversion.json", FILE]
    assert sorted(p.name for p in out.parent.iterdir()) == sorted(names)
