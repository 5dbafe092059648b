"""The demo checkpoint in the user's cache: unpacked once, checked every time, repaired if broken.

Layout: CACHE/ninfer/demo/DIGEST/{checkpoint,dflash2}/..., with CACHE = XDG_CACHE_HOME or
~/.cache. A complete folder gets its name by one rename; a broken file in a named folder is
replaced by one rename. A lock file beside it lets one process write at a time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninfer_formats.errors import UsageError
from ninfer_tools.demo.manifest import PARTS, DemoFile, Manifest, read_manifest
from ninfer_tools.demo.packing import unpack

try:
    import fcntl
except ImportError:  # Without locks two first uses both unpack; the first rename wins.
    fcntl = None


def cache_home() -> Path:
    """Return the user's cache folder; the only place that reads XDG_CACHE_HOME.

    UsageError where there is neither the variable nor a home folder.
    """
    # The XDG specification: a relative path counts as unset.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise UsageError("no home folder", remedy="set XDG_CACHE_HOME") from error


def demo_home() -> Path:
    return cache_home() / "ninfer" / "demo"


def locate_demo(part: str = "checkpoint", home: Path | None = None) -> Path:
    """Return the folder of `checkpoint` or `dflash2`, unpacking it on first use.

    UsageError for an unknown part or a cache that cannot be written, ArtifactError when the
    bundled data itself is damaged.
    """
    if part not in PARTS:
        raise UsageError("no such part of the demo checkpoint", got=part, want=" or ".join(PARTS))
    return ensure_unpacked(read_manifest(), demo_home() if home is None else home) / part


def ensure_unpacked(manifest: Manifest, home: Path) -> Path:
    """Return the folder that holds every file of `manifest` with the right content."""
    folder = home / manifest.digest
    if not find_broken(manifest, folder):
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / f"{manifest.digest}.lock"):
            # Another process may have done the work while this one waited.
            broken = find_broken(manifest, folder)
            if broken:
                _write(manifest, broken, folder)
    except OSError as error:
        raise UsageError(
            "the demo checkpoint cannot be unpacked here",
            path=folder,
            got=error.strerror or error,
            remedy="set XDG_CACHE_HOME to a folder you may write, with "
            f"{manifest.bytes / 1e6:.0f} MB free",
        ) from error
    return folder


def find_broken(manifest: Manifest, folder: Path) -> list[DemoFile]:
    """Return the files that are missing or differ from what was packed."""
    return [file for file in manifest.files if not _is_intact(folder / file.name, file)]


def _is_intact(path: Path, file: DemoFile) -> bool:
    try:
        if path.stat().st_size != file.bytes:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock; it ends with the process, so a killed one never blocks others."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(manifest: Manifest, files: list[DemoFile], folder: Path) -> None:
    """Unpack `files` beside `folder`, then rename: the whole folder, or file by file to repair."""
    prefix = f"{folder.name}.part-"
    if fcntl is not None:
        # The lock is held: what lies here was left by a killed process.
        for leftover in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        for file in files:
            _write_file(manifest, file, work / file.name)
        if not _name_folder(work, folder):
            for file in files:
                _replace(work / file.name, folder / file.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _name_folder(work: Path, folder: Path) -> bool:
    """Give a complete new folder its name; False where a folder of that name already stands."""
    if folder.is_dir() and any(folder.iterdir()):
        return False
    work.chmod(0o755)
    work.rename(folder)
    return True


def _replace(new: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        # No file can be renamed over a folder; aside it goes, and away with the work folder.
        path.rename(new.with_name(f"{new.name}.aside"))
    new.replace(path)


def _write_file(manifest: Manifest, file: DemoFile, path: Path) -> None:
    packed = manifest.packed / f"{file.name}.zst"
    content = unpack(packed, file.packed_sha256, file.sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        out.write(content)
        out.flush()
        # A power cut must not leave a named file without its content.
        os.fsync(out.fileno())
