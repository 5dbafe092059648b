"""Laws of a pull that goes well: what is chosen, what is checked, what gets its name when."""

from __future__ import annotations

import hashlib

import pytest

from builders.artifact_bytes import compact
from builders.hub_server import Fault

REPOSITORY = "someone/Model-NInfer"
TARGET = f"{REPOSITORY}@main"
NAME = "m.ninfer"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_artifact_arrives_and_is_described(hub, pull, out, artifact):
    """P-2 and P-13: the commit is printed, then what inspect says."""
    commit = hub.commit(REPOSITORY, {NAME: artifact, "README.md": b"hello"})
    answer = pull(TARGET)
    assert (answer.code, names(out)) == (0, [NAME])
    assert (out / NAME).read_bytes() == artifact
    assert answer.err.splitlines()[0] == f"{TARGET} is commit {commit}"
    first, *overview = answer.out.splitlines()
    assert first == f"{out / NAME}: 30.00 KiB, downloaded, verified against hub"
    assert any("demo" in line for line in overview)


def test_json_is_one_object_with_digest_and_commit(hub, pull, out, artifact):
    """P-2 and P-13."""
    sums = f"{digest(artifact)}  {NAME}\n".encode()
    commit = hub.commit(REPOSITORY, {NAME: artifact, "SHA256SUMS": sums})
    record = pull(TARGET, "--json").record
    assert (record["commit"], record["pinned"]) == (commit, False)
    assert record["files"] == [
        {
            "name": NAME,
            "path": str(out / NAME),
            "bytes": len(artifact),
            "sha256": digest(artifact),
            "verified_by": ["hub", "SHA256SUMS"],
            "was_there": False,
        }
    ]
    assert record["artifacts"][0]["name"] == "demo"


def test_second_pull_checks_and_downloads_nothing(hub, pull, artifact):
    """P-14."""
    hub.commit(REPOSITORY, {NAME: artifact})
    pull(TARGET)
    answer = pull(TARGET)
    assert answer.code == 0
    assert "was there already, verified against hub" in answer.out
    assert hub.sent(NAME) == len(artifact)


def test_named_files_and_globs_keep_their_paths(hub, pull, out, artifact):
    """P-6."""
    hub.commit(REPOSITORY, {NAME: artifact, "a/x.json": b"{}", "a/y.txt": b"y", "b.txt": b""})
    answer = pull(TARGET, "a/*", "b.txt")
    assert answer.code == 0, answer.err
    assert names(out) == ["a/x.json", "a/y.txt", "b.txt"]
    assert (out / "b.txt").read_bytes() == b""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["absent.ninfer"], "no file matches (got absent.ninfer, want README.md)"),
        ([], "the repository holds no .ninfer file (want README.md)"),
    ],
)
def test_choice_of_nothing_is_bad_usage(hub, pull, out, files, message):
    """P-6."""
    hub.commit(REPOSITORY, {"README.md": b"x"})
    answer = pull(TARGET, *files)
    assert (answer.code, out.exists()) == (2, False)
    assert answer.failure.endswith(message)


def test_parts_come_with_their_entry_and_before_it(hub, pull, out, split_artifact):
    """P-6."""
    hub.commit(REPOSITORY, split_artifact)
    answer = pull(TARGET, "multi.ninfer")
    assert answer.code == 0, answer.err
    assert names(out) == sorted(split_artifact)
    order = [item.path.rpartition("/")[2] for item in hub.requests if "/resolve/" in item.path]
    assert order == ["multi.ninfer.part-0001", "multi.ninfer.part-0002", "multi.ninfer"]


def test_entry_without_a_part_gets_no_name(hub, pull, out, split_artifact):
    """P-14."""
    files = {name: data for name, data in split_artifact.items() if not name.endswith("0002")}
    hub.commit(REPOSITORY, files)
    answer = pull(TARGET)
    assert answer.code == 1
    assert "needs parts that were not pulled: multi.ninfer.part-0002" in answer.failure
    assert not (out / "multi.ninfer").exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"GGUF" + bytes(5000), 2), (b"NINFER\0\2" + (5).to_bytes(8, "little") + b"[[[[[", 1)],
)
def test_entry_that_is_no_artifact_gets_no_name(hub, pull, out, content, code):
    """P-14: even when its digest is right."""
    hub.commit(REPOSITORY, {NAME: content})
    answer = pull(TARGET)
    assert (answer.code, (out / NAME).exists()) == (code, False)


def test_different_file_is_kept_without_force(hub, pull, out, artifact):
    """P-14."""
    hub.commit(REPOSITORY, {NAME: artifact})
    out.mkdir()
    (out / NAME).write_bytes(bytes(len(artifact)))
    answer = pull(TARGET)
    assert (answer.code, hub.sent(NAME)) == (2, 0)
    assert "a different file of this name is there" in answer.failure
    assert pull(TARGET, "--force").code == 0
    assert (out / NAME).read_bytes() == artifact


def test_old_file_stays_until_the_new_one_is_whole(hub, pull, out, artifact):
    """P-14: also with --force."""
    hub.commit(REPOSITORY, {NAME: artifact})
    hub.fail(NAME, Fault(content=bytes(len(artifact))))
    out.mkdir()
    (out / NAME).write_bytes(b"old")
    assert pull(TARGET, "--force").code == 1
    assert (out / NAME).read_bytes() == b"old"


def test_set_is_replaced_only_as_a_whole(hub, pull, out, split_artifact):
    """P-14."""
    hub.commit(REPOSITORY, split_artifact)
    pull(TARGET)
    old = dict.fromkeys(split_artifact, b"old")
    for name, data in old.items():
        (out / name).write_bytes(data)
    hub.fail("multi.ninfer", Fault(status=400))
    assert pull(TARGET, "--force").code == 1
    assert {name: (out / name).read_bytes() for name in old} == old
    assert pull(TARGET, "--force").code == 0
    assert {name: (out / name).read_bytes() for name in old} == split_artifact


@pytest.mark.parametrize(
    "name", ["../x.ninfer", "/tmp/x.ninfer", "a/../../x.ninfer", "a\\x.ninfer"]
)
def test_path_that_leaves_the_folder_is_refused(hub, pull, out, artifact, name):
    """P-19."""
    hub.commit(REPOSITORY, {name: artifact})
    answer = pull(TARGET)
    assert (answer.code, out.exists()) == (1, False)
    assert "names a file outside of itself" in answer.failure


def test_folder_in_the_way_is_refused(hub, pull, out, artifact):
    """P-14."""
    hub.commit(REPOSITORY, {NAME: artifact})
    (out / NAME).mkdir(parents=True)
    answer = pull(TARGET, "--force")
    assert (answer.code, hub.sent(NAME)) == (2, 0)
    assert "a folder is in the way" in answer.failure


def test_choice_options_belong_to_short_names(hub, pull):
    """P-7."""
    answer = pull(TARGET, "--container", "2")
    assert (answer.code, hub.requests) == (2, [])


def test_file_gets_the_mode_of_any_new_file(hub, pull, out, artifact):
    """P-14."""
    hub.commit(REPOSITORY, {NAME: artifact})
    pull(TARGET)
    (out / "other").touch()
    assert (out / NAME).stat().st_mode == (out / "other").stat().st_mode


def test_token_goes_to_the_hub_alone(hub, pull, out, artifact, monkeypatch):
    """P-16."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.commit(REPOSITORY, {NAME: artifact})
    hub.repositories[REPOSITORY].token = "hf_secret"
    assert pull(TARGET).code == 0
    tokens = {(item.host, item.token) for item in hub.requests}
    assert tokens == {("hub", "Bearer hf_secret"), ("content", None)}


def test_manifest_is_checked_too(hub, pull, artifact):
    """P-13."""
    manifest = {"artifact": {"filename": NAME, "sha256": digest(artifact), "bytes": len(artifact)}}
    hub.commit(REPOSITORY, {NAME: artifact, "artifact-manifest.json": compact(manifest)})
    record = pull(TARGET, "--json").record
    assert record["files"][0]["verified_by"] == ["hub", "artifact-manifest.json"]
