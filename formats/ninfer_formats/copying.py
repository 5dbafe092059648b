"""Copy byte ranges between open files verbatim, as fast as the kernel can."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from ninfer_formats.errors import ArtifactError

# One kernel call copies at most this much, so that progress and Ctrl-C come through.
KERNEL_CHUNK = 64 << 20
BUFFER_BYTES = 8 << 20

# Answers of kernels and file systems that do not copy between these two files themselves.
_KERNEL_REFUSES = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EBADF,
}


def copy_range(
    source_fd: int,
    source_offset: int,
    target_fd: int,
    target_offset: int,
    count: int,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Copy `count` bytes from one open file to another; `progress` gets each step's bytes.

    Holes of the source are skipped: the target range must hold nothing yet (a fresh file), where
    what is never written reads as zero. The target ends up at least `target_offset + count`
    bytes long. The file position of the source moves, that of the target does not.

    Raises ArtifactError when the source ends before the range does; OSError from the kernel.
    """
    report = progress or (lambda copied: None)
    end = source_offset + count
    size = os.fstat(source_fd).st_size
    if size < end:
        raise _source_too_short(size, end)
    shift = target_offset - source_offset
    position = source_offset
    for begin, stop in _data_runs(source_fd, source_offset, end):
        if begin > position:
            report(begin - position)
        for copied in _copy_run(source_fd, begin, target_fd, begin + shift, stop - begin):
            report(copied)
        position = stop
    if position < end:
        report(end - position)
    if os.fstat(target_fd).st_size < end + shift:
        os.ftruncate(target_fd, end + shift)


def _data_runs(fd: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the (begin, end) ranges inside the given one that are not holes, in order."""
    while begin < end:
        try:
            data = os.lseek(fd, begin, os.SEEK_DATA)
            stop = os.lseek(fd, data, os.SEEK_HOLE)
        except OSError as error:
            # ENXIO: nothing but a hole up to the end of the file.
            if error.errno == errno.ENXIO:
                return
            data, stop = begin, end
        except AttributeError:  # A system without these seeks.
            data, stop = begin, end
        if data >= end:
            return
        yield data, min(stop, end)
        begin = stop


def _copy_run(
    source_fd: int, source_offset: int, target_fd: int, target_offset: int, count: int
) -> Iterator[int]:
    """Copy all `count` bytes, yielding the size of each step."""
    buffer: memoryview | None = None
    done = 0
    while done < count:
        left = count - done
        moved = 0
        if buffer is None:
            moved = _copy_in_kernel(
                source_fd, source_offset + done, target_fd, target_offset + done, left
            )
        if not moved:
            buffer = buffer or memoryview(bytearray(min(left, BUFFER_BYTES)))
            moved = _copy_through(
                buffer[:left], source_fd, source_offset + done, target_fd, target_offset + done
            )
        done += moved
        yield moved


def _copy_in_kernel(
    source_fd: int, source_offset: int, target_fd: int, target_offset: int, count: int
) -> int:
    """Return the bytes copied; 0 when the kernel refuses or sees the end of the file."""
    try:
        return os.copy_file_range(
            source_fd, target_fd, min(count, KERNEL_CHUNK), source_offset, target_offset
        )
    except OSError as error:
        if error.errno not in _KERNEL_REFUSES:
            raise
        return 0
    except AttributeError:  # A system without this call.
        return 0


def _copy_through(
    buffer: memoryview, source_fd: int, source_offset: int, target_fd: int, target_offset: int
) -> int:
    """Return the bytes copied through `buffer`, at least one; ArtifactError at the file's end."""
    read = os.preadv(source_fd, [buffer], source_offset)
    if not read:
        raise _source_too_short(source_offset, source_offset + len(buffer))
    done = 0
    while done < read:
        done += os.pwrite(target_fd, buffer[done:read], target_offset + done)
    return read


def _source_too_short(size: int, end: int) -> ArtifactError:
    return ArtifactError(
        "the source file ends too early",
        where=f"byte offset {size}",
        got=f"{size} bytes",
        want=f"at least {end} bytes",
        remedy="the file is truncated or was changed meanwhile; fetch it again",
    )
