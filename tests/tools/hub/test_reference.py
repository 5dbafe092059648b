"""Laws of references: what is a folder, what is a repository, what is pinned."""

from __future__ import annotations

import pytest

from ninfer_formats.errors import UsageError
from ninfer_tools.hub.reference import HubReference, parse_reference, parse_source

COMMIT = "3526913004b1cf552cb57b88d6a5c6f5e4a89a70"


@pytest.mark.parametrize(
    ("text", "repository", "revision", "pinned"),
    [
        ("Qwen/Qwen3.8-27B@main", "Qwen/Qwen3.8-27B", "main", False),
        (f"a/b@{COMMIT}", "a/b", COMMIT, True),
        (f"a/b@{COMMIT.upper()}", "a/b", COMMIT, True),
        (f"a/b@{COMMIT[:39]}", "a/b", COMMIT[:39], False),
        ("a/b@refs/pr/3", "a/b", "refs/pr/3", False),
        ("a_1/b.c-d@v1.0", "a_1/b.c-d", "v1.0", False),
    ],
)
def test_reference_is_repository_and_revision(text, repository, revision, pinned):
    """P-1."""
    reference = parse_reference(text)
    assert (reference.repository, reference.revision) == (repository, revision)
    assert reference.is_pinned is pinned


@pytest.mark.parametrize(
    "text",
    [
        "a/b@",
        "a@main",
        "@main",
        "a/b/c@main",
        "a/../b@main",
        "-a/b@main",
        "a/b--c@main",
        "a/b@x y",
        "a/b@../../x",
        "a/b@/x",
        "a/b@x/",
        "a/b@x//y",
        "a/b@x\n",
        "a/b@" + "x" * 256,
    ],
)
def test_malformed_reference_is_bad_usage(text):
    """P-1."""
    with pytest.raises(UsageError):
        parse_reference(text)


def test_missing_revision_is_refused_with_the_way_out():
    """P-1: nothing means the newest by accident."""
    with pytest.raises(UsageError, match=r"a/b@main for the newest one, or a/b@COMMIT to pin"):
        parse_reference("a/b")


def test_existing_folder_wins(tmp_path, monkeypatch):
    """P-1."""
    folder = tmp_path / "a" / "b@main"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_source("a/b@main").resolve() == folder
    assert parse_source("a/c@main") == HubReference("a/c", "main")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models/absent", "no such folder"),
        ("./a@b", "no such folder"),
        ("/a/b@main", "no such folder"),
        ("~/a/b@main", "no such folder"),
        ("file.txt", "a file, not a checkpoint folder"),
    ],
)
def test_path_that_is_no_folder_is_not_asked_of_the_hub(tmp_path, monkeypatch, text, message):
    """P-1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(UsageError, match=message):
        parse_source(text)
