"""Frontend files and published sizes: specs/other-engines.md, section 6."""

import os

import pytest

from builders.edited_artifacts import save_legacy
from ninfer_formats.inventories.published import PINNED_RESOURCES
from ninfer_formats.reader import open_artifact
from ninfer_tools.compatibility import resource_rules
from ninfer_tools.compatibility.engines import judge


def test_other_frontend_files_are_noted_not_refused(judge_legacy):
    """E-23."""
    verdict = judge_legacy("upstream-v2")
    assert verdict.compatible
    assert any("chat template is not the official one" in text for text in verdict.notices)
    assert any("not the official files" in t and "tokenizer.json" in t for t in verdict.notices)


def test_official_frontend_files_need_no_word(judge_legacy, monkeypatch):
    """E-23: every digest equal to its pin."""
    pins = PINNED_RESOURCES["qwen3.8"]
    monkeypatch.setattr(resource_rules, "_digest", lambda artifact, role: pins[role])
    notices = " ".join(judge_legacy("upstream-v2").notices)
    assert "official" not in notices


@pytest.mark.parametrize("engine", ["upstream-v2", "this"])
def test_frontend_files_without_text_are_noted(tmp_path, engine):
    """E-23, E-2: a file of zeros may be an interrupted copy."""
    path = save_legacy(tmp_path / "holes.ninfer", "qwen3.8-27b")
    artifact = open_artifact(path)
    start, item = artifact.prefix.payload_start, artifact.objects["frontend/generation_config.json"]
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, bytes(item.bytes), start + item.offset)
    os.close(descriptor)
    verdict = judge(open_artifact(path), engine)
    assert verdict.compatible
    assert any("no usable text: generation_config.json;" in text for text in verdict.notices)


@pytest.mark.parametrize(
    ("engine", "options", "revision"),
    [
        ("upstream-v2", {"groups": None, "model_id": "qwen3.6-27b"}, "bd265a36fe99"),
        ("upstream-v2", {}, "52320554b5e7"),
    ],
)
def test_minimum_revision_of_the_published_file_of_this_size_is_told(
    judge_legacy, engine, options, revision
):
    """E-22."""
    verdict = judge_legacy(engine, **options)
    assert any(f"needs engine revision {revision} or newer" in text for text in verdict.notices)


def test_minimum_revision_of_version_3_is_told(judge_v3):
    """E-22: the directory has the published size once the payload has."""

    def edit(root):
        root["files"][0]["payload_bytes"] += 768

    verdict = judge_v3("upstream-v3", edit)
    assert any("needs engine revision 98dada0e03cb or newer" in text for text in verdict.notices)
