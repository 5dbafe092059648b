"""Laws of digests: every source that vouches for a file, and contradictions among them."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from ninfer_formats.errors import NinferError
from ninfer_tools.hub.digests import Digest, expected_digests, git_blob_id, parse_sums
from ninfer_tools.hub.reference import parse_reference
from ninfer_tools.hub.snapshot import open_snapshot

DATA = b"weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()
A, B = "a" * 64, "b" * 64


def digests(hub, files, known=()):
    hub.commit("a/b", {"m.ninfer": DATA, **files})
    return expected_digests(open_snapshot(parse_reference("a/b@main")), "m.ninfer", known)


def manifest(**artifact):
    return {"artifact-manifest.json": json.dumps({"artifact": artifact}).encode()}


def test_git_blob_id_is_that_of_git():
    """P-13: the id of the empty file is known to everyone who uses git."""
    assert git_blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    told = subprocess.run(
        ["git", "hash-object", "--stdin"], input=b"hello\n", capture_output=True, check=True
    )
    assert git_blob_id(b"hello\n") == told.stdout.decode().strip()


def test_sums_file_is_read_in_both_forms_of_coreutils():
    """P-13."""
    text = f"# made by hand\n{A}  ./x\n{B.upper()} *y z\nSHA256 (w) = {A}\n{A[:63]}  short\n\n"
    assert parse_sums(text) == {"x": A, "y z": B, "w": A}


def test_all_sources_are_asked(hub):
    """P-13."""
    files = {
        "SHA256SUMS": f"{SHA}  m.ninfer\n".encode(),
        **manifest(filename="m.ninfer", sha256=SHA, bytes=len(DATA)),
    }
    found = digests(hub, files, [Digest("sha256", SHA, "known")])
    assert [item.origin for item in found] == [
        "hub",
        "SHA256SUMS",
        "artifact-manifest.json",
        "known",
    ]


def test_sources_that_speak_of_other_files_are_not_asked(hub):
    """P-13."""
    files = {"SHA256SUMS": f"{A}  other\n".encode(), **manifest(filename="other", sha256=A)}
    assert [item.origin for item in digests(hub, files)] == ["hub"]


@pytest.mark.parametrize("text", [b"not json", b"[]", b'{"artifact": 3}', b"{}"])
def test_manifest_of_another_kind_is_not_asked(hub, text):
    """P-13."""
    assert len(digests(hub, {"artifact-manifest.json": text})) == 1


def test_manifest_vouches_for_every_file_of_the_artifact(hub):
    """P-13: a part is named in `files` only, the entry there once more."""
    part = {"filename": "m.ninfer", "sha256": SHA, "bytes": len(DATA)}
    entry = {"filename": "entry.ninfer", "sha256": A, "bytes": 3}
    found = digests(hub, manifest(**entry, files=[entry, part]))
    assert [item.origin for item in found] == ["hub", "artifact-manifest.json"]
    found = digests(hub, manifest(**part, files=[part, entry, 5]))
    assert [item.origin for item in found] == ["hub", "artifact-manifest.json"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            manifest(filename="e", files=[{"filename": "m.ninfer", "sha256": A}]),
            "artifact-manifest.json and hub name different",
        ),
        (
            manifest(filename="e", files=[{"filename": "m.ninfer", "sha256": SHA, "bytes": 7}]),
            "name different sizes",
        ),
        ({"SHA256SUMS": f"{A}  m.ninfer\n".encode()}, "SHA256SUMS and hub name different contents"),
        (manifest(filename="m.ninfer", sha256=A), "artifact-manifest.json and hub name different"),
        (manifest(filename="m.ninfer", sha256=SHA, bytes=7), "name different sizes"),
    ],
)
def test_contradiction_is_found_before_the_download(hub, files, message):
    """P-13."""
    with pytest.raises(NinferError, match=message):
        digests(hub, files)
    assert hub.sent("m.ninfer") == 0


def test_known_digest_takes_part(hub):
    """P-13."""
    with pytest.raises(NinferError, match="known and hub name different contents"):
        digests(hub, {}, [Digest("sha256", A, "known")])
