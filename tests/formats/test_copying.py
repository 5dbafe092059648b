"""Laws of copying byte ranges (specs/publication.md, PUB-14 to PUB-16)."""

import errno
import os
import random
from pathlib import Path

import pytest

from ninfer_formats import copying
from ninfer_formats.copying import copy_range
from ninfer_formats.errors import ArtifactError

KIB = 1 << 10


def refuse(code: int):
    def call(*args):
        raise OSError(code, os.strerror(code))

    return call


@pytest.fixture(params=["kernel", "refusing kernel", "kernel without the call", "silent kernel"])
def way(request, monkeypatch):
    """Every way a copy can go; chunks small enough that each test takes several steps."""
    monkeypatch.setattr(copying, "KERNEL_CHUNK", 8 * KIB)
    monkeypatch.setattr(copying, "BUFFER_BYTES", 3000)
    if request.param == "refusing kernel":
        monkeypatch.setattr(copying.os, "copy_file_range", refuse(errno.EXDEV))
    elif request.param == "kernel without the call":
        monkeypatch.delattr(copying.os, "copy_file_range")
    elif request.param == "silent kernel":
        # Some file systems answer 0 although bytes are left.
        monkeypatch.setattr(copying.os, "copy_file_range", lambda *args: 0)
    return request.param


def copy(source: Path, target: Path, begin: int, at: int, count: int) -> list[int]:
    steps: list[int] = []
    flags = os.O_RDWR | os.O_CREAT
    source_fd, target_fd = os.open(source, os.O_RDONLY), os.open(target, flags, 0o600)
    try:
        copy_range(source_fd, begin, target_fd, at, count, steps.append)
    finally:
        os.close(source_fd)
        os.close(target_fd)
    return steps


def write_random(path: Path, size: int) -> bytes:
    data = random.Random(size).randbytes(size)
    path.write_bytes(data)
    return data


@pytest.mark.parametrize(
    ("begin", "at", "count"),
    [
        (0, 0, 50_000),
        (0, 4096, 50_000),
        (1, 0, 49_999),
        (4097, 13, 8 * KIB),
        (12_345, 4096, 1),
        (50_000, 7, 0),
        (0, 0, 0),
    ],
)
@pytest.mark.usefixtures("way")
def test_range_is_copied_verbatim(tmp_path, begin, at, count):
    """PUB-14, PUB-16"""
    data = write_random(tmp_path / "source", 50_000)
    steps = copy(tmp_path / "source", tmp_path / "target", begin, at, count)
    assert (tmp_path / "target").read_bytes() == bytes(at) + data[begin : begin + count]
    assert sum(steps) == count


@pytest.mark.usefixtures("way")
def test_bytes_around_the_target_range_stay(tmp_path):
    """PUB-14"""
    data = write_random(tmp_path / "source", 30_000)
    (tmp_path / "target").write_bytes(b"a" * 10 + bytes(20_000) + b"z" * 10)
    copy(tmp_path / "source", tmp_path / "target", 5, 10, 20_000)
    assert (tmp_path / "target").read_bytes() == b"a" * 10 + data[5:20_005] + b"z" * 10


def test_progress_is_reported_for_every_chunk(tmp_path, monkeypatch):
    """PUB-14: 20,000 bytes in chunks of 8,192 are 8192 + 8192 + 3616."""
    monkeypatch.setattr(copying, "KERNEL_CHUNK", 8192)
    write_random(tmp_path / "source", 20_000)
    assert copy(tmp_path / "source", tmp_path / "target", 0, 0, 20_000) == [8192, 8192, 3616]


def make_sparse(path: Path) -> bytes:
    """Write 4 MiB: a hole, 64 KiB of data at 1 MiB, a hole, 5 bytes at 3 MiB, a hole."""
    data = random.Random(1).randbytes(64 * KIB)
    with path.open("wb") as file:
        file.seek(1024 * KIB)
        file.write(data)
        file.seek(3072 * KIB)
        file.write(b"12345")
        file.truncate(4096 * KIB)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("begin", "count"),
    [
        (0, 4096 * KIB),
        (1030 * KIB, 2048 * KIB),
        (1100 * KIB, 1024 * KIB),
        (3072 * KIB + 2, 1024 * KIB - 2),
        (4000 * KIB, 50 * KIB),
    ],
)
@pytest.mark.usefixtures("way")
def test_holes_read_as_zero_and_stay_holes(tmp_path, begin, count):
    """PUB-14"""
    data = make_sparse(tmp_path / "source")
    steps = copy(tmp_path / "source", tmp_path / "target", begin, 4096, count)
    assert (tmp_path / "target").read_bytes() == bytes(4096) + data[begin : begin + count]
    assert sum(steps) == count
    assert (tmp_path / "target").stat().st_blocks * 512 < 200 * KIB


@pytest.mark.parametrize("seek_exists", [True, False])
def test_file_system_that_knows_no_holes_is_copied_whole(tmp_path, monkeypatch, seek_exists):
    """PUB-16"""
    data = make_sparse(tmp_path / "source")
    if seek_exists:
        monkeypatch.setattr(copying.os, "lseek", refuse(errno.EINVAL))
    else:
        monkeypatch.delattr(copying.os, "SEEK_DATA")
    copy(tmp_path / "source", tmp_path / "target", 0, 0, len(data))
    assert (tmp_path / "target").read_bytes() == data


@pytest.mark.usefixtures("way")
def test_source_that_is_too_short_is_refused_before_anything_is_copied(tmp_path):
    """PUB-15"""
    write_random(tmp_path / "source", 10_000)
    with pytest.raises(ArtifactError, match=r"got 10000 bytes, want at least 10001 bytes"):
        copy(tmp_path / "source", tmp_path / "target", 5_000, 0, 5_001)
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.parametrize("kernel_copies", [True, False])
def test_source_that_shrinks_during_the_copy_is_an_error(tmp_path, monkeypatch, kernel_copies):
    """PUB-15"""
    monkeypatch.setattr(copying, "KERNEL_CHUNK", 4096)
    monkeypatch.setattr(copying, "BUFFER_BYTES", 4096)
    if not kernel_copies:
        monkeypatch.setattr(copying.os, "copy_file_range", refuse(errno.ENOSYS))
    write_random(tmp_path / "source", 16_384)
    source = os.open(tmp_path / "source", os.O_RDWR)
    target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with pytest.raises(ArtifactError, match=r"byte offset 8192: .* ends too early"):
            copy_range(source, 0, target, 0, 16_384, lambda copied: os.ftruncate(source, 8192))
    finally:
        os.close(source)
        os.close(target)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_real_failure_of_the_kernel_is_not_retried_through_a_buffer(tmp_path, monkeypatch, code):
    """PUB-16"""
    monkeypatch.setattr(copying.os, "copy_file_range", refuse(code))
    write_random(tmp_path / "source", 10_000)
    with pytest.raises(OSError, match=os.strerror(code)):
        copy(tmp_path / "source", tmp_path / "target", 0, 0, 10_000)


def test_interrupt_from_the_progress_report_passes_at_once(tmp_path, monkeypatch):
    """PUB-14"""
    monkeypatch.setattr(copying, "KERNEL_CHUNK", 4096)
    write_random(tmp_path / "source", 40_960)
    steps = []

    def interrupt(copied: int) -> None:
        steps.append(copied)
        raise KeyboardInterrupt

    source = os.open(tmp_path / "source", os.O_RDONLY)
    target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with pytest.raises(KeyboardInterrupt):
            copy_range(source, 0, target, 0, 40_960, interrupt)
    finally:
        os.close(source)
        os.close(target)
    assert steps == [4096]
