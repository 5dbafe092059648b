"""Laws of short names: which published file is meant, and which commit holds exactly it."""

from __future__ import annotations

import hashlib

import pytest

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.published import PUBLISHED, PublishedArtifact
from ninfer_tools.hub import published_choice
from ninfer_tools.hub.published_choice import Wish, choose_published, is_short_name, locate

REPOSITORY = "neroued/Tiny"
DATA = b"weights" * 1000


def known(data=DATA, revision: str | None = "main", **facts):
    sha256 = hashlib.sha256(data).hexdigest()
    return PublishedArtifact(
        "tiny", 3, REPOSITORY, revision, len(data), **{"sha256": sha256, **facts},
        minimum_runtime=None, model_id="tiny-1b", weights_id="groupwise-int", objects=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wish", "revision", "sha256"),
    [
        ("qwen3.8-27b", Wish(), "main", "81f924d440c2"),
        ("Qwen3.8-27B", Wish(3), "main", "81f924d440c2"),
        ("qwen3.8-27b", Wish(2), "3526913004b1cf552cb57b88d6a5c6f5e4a89a70", "eec39564993d"),
        (
            "qwen3.8-27b",
            Wish(2, "dflash2"),
            "dc370fb6295ae8b786e1af4f90d7142a16255c35",
            "0634abb07024",
        ),
        ("qwen3.8-27b", Wish(None, "dflash2"), "main", "81f924d440c2"),
        ("qwen3.8-27b", Wish(weights="nvfp4"), "main", "74d2c57145e6"),
        (
            "qwen3.8-27b",
            Wish(2, weights="nvfp4"),
            "204e3d92c30d9d05f3300d2f52e443ad1edf6ddf",
            "bb3360522a06",
        ),
        ("qwen3.6-27b", Wish(1), None, "74fac75f3a6b"),
        ("qwen3.6-35b-a3b", Wish(2, "dflash"), "560f227e", "1fb9ea0b5b85"),
    ],
)
def test_short_name_means_one_published_file(name, wish, revision, sha256):
    """P-7."""
    artifact = choose_published(name, wish)
    assert artifact.revision == revision
    assert (artifact.sha256 or "").startswith(sha256)


def test_every_published_family_has_a_short_name():
    """P-7."""
    for artifact in PUBLISHED:
        assert is_short_name(artifact.model_id)
        wish = Wish(artifact.version, artifact.drafter, artifact.weights_id)
        assert choose_published(artifact.model_id, wish).drafter == artifact.drafter


@pytest.mark.parametrize(
    ("name", "wish", "message"),
    [
        (
            "qwen9",
            Wish(),
            r"not the short name .*want qwen3\.6-27b, qwen3\.6-35b-a3b, qwen3\.8-27b",
        ),
        ("qwen3.8-27b", Wish(1), r"--container 2 --weights groupwise-int --with dflash2"),
        ("qwen3.8-27b", Wish(2, "dflash"), "nothing like this was published"),
        ("qwen3.6-35b-a3b", Wish(weights="nvfp4"), "nothing like this was published"),
    ],
)
def test_name_of_nothing_lists_what_was_published(name, wish, message):
    """P-7."""
    with pytest.raises(UsageError, match=message):
        choose_published(name, wish)


def test_recorded_revision_is_taken_when_it_holds_the_file(hub):
    """P-8."""
    commit = hub.commit(REPOSITORY, {"tiny.ninfer": DATA})
    assert locate(known()).commit == commit
    assert not [item for item in hub.requests if "/commits/" in item.path]


@pytest.mark.parametrize("revision", [None, "main", "0123abcd"])
def test_moved_file_is_found_in_the_history(hub, revision):
    """P-8: no byte of any version is read for that."""
    hub.page_entries = 2
    hub.commit(REPOSITORY, {"README.md": b"first"})
    commit = hub.commit(REPOSITORY, {"tiny.ninfer": DATA})
    for number in range(3):
        hub.commit(REPOSITORY, {"tiny.ninfer": DATA + bytes([number])})
    snapshot = locate(known(revision=revision))
    assert (snapshot.commit, hub.sent("tiny.ninfer")) == (commit, 0)


def test_lost_file_is_one_line_with_the_way_out(hub):
    """P-8."""
    hub.commit(REPOSITORY, {"tiny.ninfer": DATA + b"x"})
    with pytest.raises(NinferError, match=f"no commit .*ninfer pull {REPOSITORY}@main"):
        locate(known())


def test_file_without_a_known_digest_is_refused(hub):
    """P-8: there is one in the list."""
    with pytest.raises(UsageError, match="not known where"):
        locate(choose_published("qwen3.8-27b", Wish(2, "dflash2", "nvfp4")))
    assert hub.requests == []


def test_short_name_pulls_the_known_file(hub, pull, out, artifact, monkeypatch):
    """P-7, P-13: verified against the list, too."""
    monkeypatch.setattr(published_choice, "PUBLISHED", (known(artifact),))
    hub.commit(REPOSITORY, {"tiny.ninfer": artifact})
    hub.commit(REPOSITORY, {"tiny.ninfer": artifact[:-1] + b"\x41"})
    answer = pull("tiny-1b")
    assert answer.code == 0, answer.err
    assert "verified against hub, the list of published artifacts" in answer.out
    assert (out / "tiny.ninfer").read_bytes() == artifact


def test_short_name_takes_no_files(hub, pull):
    """P-7."""
    answer = pull("qwen3.8-27b", "x.ninfer")
    assert (answer.code, hub.requests) == (2, [])
