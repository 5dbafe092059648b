"""Laws of packed files: nothing leaves one unless both of its hashes hold."""

from __future__ import annotations

import hashlib

import pytest

from ninfer_formats.errors import ArtifactError
from ninfer_tools.demo.packing import pack, unpack

CONTENT = b"weights" * 100
GOOD = hashlib.sha256(CONTENT).hexdigest()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_packing_is_deterministic_and_reversible(tmp_path):
    packed = pack(CONTENT)
    assert packed == pack(CONTENT)
    assert packed.startswith(bytes.fromhex("28b52ffd"))  # the magic number of a zstandard frame
    (tmp_path / "a.zst").write_bytes(packed)
    assert unpack(tmp_path / "a.zst", digest(packed), GOOD) == CONTENT


def test_one_flipped_bit_in_the_packed_file_is_refused(tmp_path):
    packed = bytearray(pack(CONTENT))
    want = digest(packed)
    packed[len(packed) // 2] ^= 1
    path = tmp_path / "a.zst"
    path.write_bytes(packed)
    with pytest.raises(ArtifactError, match="packed content: SHA-256 differs") as caught:
        unpack(path, want, GOOD)
    assert str(path) in str(caught.value) and "reinstall ninfer" in str(caught.value)


def test_right_frame_of_wrong_content_is_refused(tmp_path):
    packed = pack(b"other")
    (tmp_path / "a.zst").write_bytes(packed)
    with pytest.raises(ArtifactError, match="unpacked content: SHA-256 differs"):
        unpack(tmp_path / "a.zst", digest(packed), GOOD)


def test_file_that_is_no_frame_is_refused(tmp_path):
    (tmp_path / "a.zst").write_bytes(b"plain")
    with pytest.raises(ArtifactError, match="cannot be unpacked"):
        unpack(tmp_path / "a.zst", digest(b"plain"), GOOD)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"gone\.zst: bundled file cannot be read"):
        unpack(tmp_path / "gone.zst", GOOD, GOOD)
