"""Laws of the cache: a named folder is complete, a broken one is repaired, failure is one line."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import ninfer_tools.demo.cache as cache
from builders.packed_files import CONTENTS, read_tree, save_packed
from ninfer_formats.errors import ArtifactError, NinferError, UsageError
from ninfer_tools.demo.cache import ensure_unpacked, find_broken, locate_demo


def test_first_use_unpacks_every_file_bit_identically(manifest, home):
    folder = ensure_unpacked(manifest, home)
    assert folder == home / manifest.digest
    assert read_tree(folder) == CONTENTS
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_later_use_changes_nothing(manifest, home):
    folder = ensure_unpacked(manifest, home)
    before = {path: path.stat().st_ino for path in folder.rglob("*")}
    shutil.rmtree(manifest.packed)
    assert ensure_unpacked(manifest, home) == folder
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == before


def test_folder_is_named_by_its_content(tmp_path, manifest):
    changed = {**CONTENTS, "dflash2/model.safetensors": b"\x00\x7f" * 2999 + b"\x00\x7e"}
    assert save_packed(tmp_path / "same").digest == manifest.digest
    assert save_packed(tmp_path / "other", changed).digest != manifest.digest
    assert len(manifest.digest) == 16 and int(manifest.digest, 16) >= 0


@pytest.mark.parametrize("damage", ["same size", "cut short", "gone", "a folder in its place"])
def test_broken_file_is_repaired_and_the_others_stay(manifest, home, damage):
    folder = ensure_unpacked(manifest, home)
    path, sound = folder / "checkpoint/model.safetensors", folder / "checkpoint/config.json"
    inode = sound.stat().st_ino
    if damage == "same size":
        path.write_bytes(b"\xff" + path.read_bytes()[1:])
    elif damage == "cut short":
        os.truncate(path, 100)
    else:
        path.unlink()
    if damage == "a folder in its place":
        path.mkdir()
    assert [file.name for file in find_broken(manifest, folder)] == ["checkpoint/model.safetensors"]
    ensure_unpacked(manifest, home)
    assert read_tree(folder) == CONTENTS
    assert sound.stat().st_ino == inode


def test_readers_of_a_broken_file_keep_what_they_opened(manifest, home):
    folder = ensure_unpacked(manifest, home)
    path = folder / "checkpoint/config.json"
    path.write_bytes(b"broken")
    with path.open("rb") as reader:
        ensure_unpacked(manifest, home)
        assert reader.read() == b"broken"
    assert path.read_bytes() == CONTENTS["checkpoint/config.json"]


def test_empty_folder_of_that_name_is_filled(manifest, home):
    (home / manifest.digest).mkdir(parents=True)
    assert read_tree(ensure_unpacked(manifest, home)) == CONTENTS


def test_damaged_bundle_names_no_folder_and_leaves_nothing(manifest, home):
    (manifest.packed / "dflash2/model.safetensors.zst").write_bytes(b"damaged")
    with pytest.raises(ArtifactError, match="SHA-256 differs"):
        ensure_unpacked(manifest, home)
    assert [path.name for path in home.iterdir()] == [f"{manifest.digest}.lock"]


def start_hanging_unpack(manifest, home, after: int) -> int:
    """Fork a process that hangs in the middle of unpacking; return its id."""
    child = os.fork()
    if child:
        return child
    write, written = cache._write_file, []

    def write_some(*arguments):
        if len(written) == after:
            time.sleep(60)
        written.append(write(*arguments))

    cache._write_file = write_some
    ensure_unpacked(manifest, home)
    os._exit(1)


@pytest.mark.parametrize("after", [0, 2])
def test_killed_unpacking_names_nothing_and_the_next_use_cleans_up(manifest, home, after):
    child = start_hanging_unpack(manifest, home, after)
    deadline = time.monotonic() + 20
    while len([p for p in home.rglob("*") if p.suffix in (".json", ".safetensors")]) < after or (
        not list(home.glob("*.part-*"))
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not (home / manifest.digest).exists() and list(home.glob("*.part-*"))
    assert read_tree(ensure_unpacked(manifest, home)) == CONTENTS
    assert not list(home.glob("*.part-*"))


USE = """
import sys
from pathlib import Path
from ninfer_tools.demo.cache import ensure_unpacked, find_broken
from ninfer_tools.demo.manifest import read_manifest
manifest = read_manifest(Path(sys.argv[1]))
sys.stdin.readline()
folder = ensure_unpacked(manifest, Path(sys.argv[2]))
assert not find_broken(manifest, folder)
print((folder / "checkpoint/model.safetensors").stat().st_ino)
"""


@pytest.mark.parametrize("broken", [False, True])
def test_concurrent_first_uses_share_one_unpacking(manifest, home, broken):
    if broken:
        path = ensure_unpacked(manifest, home) / "checkpoint/model.safetensors"
        path.write_bytes(b"broken")
    command = [sys.executable, "-c", USE, str(manifest.packed), str(home)]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(6)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    done = [process.communicate(timeout=60) for process in started]
    assert [error for _, error in done] == [""] * 6
    assert len({out for out, _ in done}) == 1
    assert read_tree(home / manifest.digest) == CONTENTS
    assert {path.name for path in home.iterdir()} == {manifest.digest, f"{manifest.digest}.lock"}


def as_ordinary_user(call) -> str:
    """Return the message of `call` in a process without privileges; "" when it succeeds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        message = ""
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            call()
        except NinferError as error:
            message = str(error)
        except BaseException as error:
            message = f"unexpected {error!r}"
        os.write(writing, message.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


@pytest.fixture
def open_folder():
    """A folder that every user can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    (path / "home").chmod(0o755)
    shutil.rmtree(path)


def test_read_only_cache_is_one_clear_line(open_folder):
    manifest = save_packed(open_folder / "packed")
    home = open_folder / "home"
    home.mkdir()
    home.chmod(0o555)
    message = as_ordinary_user(lambda: ensure_unpacked(manifest, home))
    assert message.startswith(f"{home / manifest.digest}: the demo checkpoint cannot be unpacked")
    assert "Permission denied" in message and "set XDG_CACHE_HOME" in message
    assert "\n" not in message and not list(home.iterdir())


def test_read_only_cache_that_is_complete_works(open_folder):
    manifest = save_packed(open_folder / "packed")
    home = open_folder / "home"
    folder = ensure_unpacked(manifest, home)
    for path in [home, folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert as_ordinary_user(lambda: ensure_unpacked(manifest, home)) == ""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)


def test_file_where_the_cache_should_be_is_one_clear_line(tmp_path, manifest):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UsageError) as caught:
        ensure_unpacked(manifest, tmp_path / "cache/ninfer/demo")
    assert "cannot be unpacked here" in str(caught.value) and "\n" not in str(caught.value)


def test_full_disk_is_one_clear_line_and_leaves_nothing(manifest, home, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write_file", fail)
    with pytest.raises(UsageError, match=r"No space left on device.* MB free"):
        ensure_unpacked(manifest, home)
    assert [path.name for path in home.iterdir()] == [f"{manifest.digest}.lock"]


def test_unknown_part_is_refused_before_anything_is_unpacked(tmp_path):
    with pytest.raises(UsageError, match="want checkpoint or dflash2"):
        locate_demo("drafter", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("named", [None, "", "relative/folder"])
def test_cache_lies_in_the_home_folder_unless_an_absolute_one_is_named(monkeypatch, named):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache.demo_home() == Path("/home/someone/.cache/ninfer/demo")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache.demo_home() == Path("/elsewhere/ninfer/demo")
