"""What a file's bytes must hash to, according to everything that vouches for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import NinferError

if TYPE_CHECKING:
    from ninfer_tools.hub.listing import HubFile
    from ninfer_tools.hub.snapshot import HubSnapshot

SUMS, MANIFEST = "SHA256SUMS", "artifact-manifest.json"
_MAX_SIDECAR_BYTES = 4 << 20
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
# coreutils' two forms: "digest  name" (" *name" for binary) and, with --tag, "SHA256 (name) = ...".
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_TAGGED = re.compile(r"SHA256 \((.+)\) = ([0-9a-fA-F]{64})")


@dataclass(frozen=True)
class Digest:
    """A digest in lower-case hexadecimal and who says so; `kind` is sha256 or git-blob."""

    kind: str
    hex: str
    origin: str


class ContentHash:
    """Digests of a file that arrives piece by piece: SHA-256, and the git blob id if it has one."""

    def __init__(self, file: HubFile) -> None:
        self._sha256, self._git = hashlib.sha256(), None
        if file.git_blob is not None:
            self._git = hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)

    def update(self, data: bytes | memoryview) -> None:
        self._sha256.update(data)
        if self._git is not None:
            self._git.update(data)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def value(self, digest: Digest) -> str:
        """Return the digest of the same kind, in hexadecimal."""
        return self._git.hexdigest() if self._git and digest.kind == "git-blob" else self.sha256


def git_blob_id(content: bytes) -> str:
    """Return the id under which git stores `content`: the SHA-1 of `blob SIZE` NUL content."""
    whole = b"blob %d\0" % len(content) + content
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest()


def expected_digests(
    snapshot: HubSnapshot, name: str, known: Iterable[Digest] = ()
) -> tuple[Digest, ...]:
    """Return every digest the file `name` must have.

    The hub's own (SHA-256 of a large file, git blob id of a small one), those of `SHA256SUMS` and
    `artifact-manifest.json` in the same folder, and those `known` beforehand. Raises NinferError,
    before anything is downloaded, when two SHA-256 or the sizes contradict each other.
    """
    file = snapshot.file(name)
    where = f"{snapshot.pinned}/{name}"
    found = [Digest("sha256", file.sha256, "hub")] if file.sha256 else []
    found += [Digest("git-blob", file.git_blob, "hub")] if file.git_blob else []
    found += [*_from_sums(snapshot, name), *_from_manifest(snapshot, name), *known]
    if not found:
        raise NinferError(
            "offline, nothing says what this file must contain",
            where=where,
            remedy="run the same command with the network (unset HF_HUB_OFFLINE)",
        )
    stated: dict[str, str] = {}
    for item in found:
        if item.kind == "sha256":
            stated.setdefault(item.hex, item.origin)
    if len(stated) > 1:
        (first, first_origin), (second, second_origin) = list(stated.items())[:2]
        raise NinferError(
            f"{second_origin} and {first_origin} name different contents",
            where=where,
            got=second,
            want=first,
            remedy="this file cannot be verified; ask its publisher, or choose another revision",
        )
    return tuple(found)


def parse_sums(text: str) -> dict[str, str]:
    """Return name -> SHA-256 of a `SHA256SUMS` file; lines of another form are skipped."""
    sums = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.rstrip()):
            sums[match[2].removeprefix("./")] = match[1].lower()
        elif match := _TAGGED.fullmatch(line.rstrip()):
            sums[match[1].removeprefix("./")] = match[2].lower()
    return sums


def _from_sums(snapshot: HubSnapshot, name: str) -> list[Digest]:
    text = _sidecar(snapshot, name, SUMS)
    own = PurePosixPath(name).name
    if text is None or own == SUMS:
        return []
    digest = parse_sums(text).get(own)
    return [Digest("sha256", digest, SUMS)] if digest else []


def _from_manifest(snapshot: HubSnapshot, name: str) -> list[Digest]:
    found = {}
    for digest, size in _manifest_entries(snapshot, name):
        if isinstance(size, int) and size != snapshot.file(name).bytes:
            raise NinferError(
                f"{MANIFEST} and the hub name different sizes",
                where=f"{snapshot.pinned}/{name}",
                got=f"{snapshot.file(name).bytes} bytes",
                want=f"{size} bytes",
            )
        if isinstance(digest, str) and _SHA256.fullmatch(digest):
            found[digest.lower()] = None
    return [Digest("sha256", digest, MANIFEST) for digest in found]


def _manifest_entries(snapshot: HubSnapshot, name: str) -> list[tuple[Any, Any]]:
    """Return (SHA-256, bytes), unchecked, of what the manifest says of a file.

    `artifact` is about the entry and may list every file of the artifact in `files`.
    """
    text = _sidecar(snapshot, name, MANIFEST)
    try:
        artifact: Any = json.loads(text or "{}").get("artifact")
    except (ValueError, AttributeError):
        return []
    if not isinstance(artifact, dict):
        return []
    files = artifact.get("files")
    entries = [artifact, *(files if isinstance(files, list) else [])]
    own = PurePosixPath(name).name
    return [
        (entry.get("sha256"), entry.get("bytes"))
        for entry in entries
        if isinstance(entry, dict) and entry.get("filename") == own
    ]


def _sidecar(snapshot: HubSnapshot, name: str, sidecar: str) -> str | None:
    path = str(PurePosixPath(name).with_name(sidecar))
    if path not in snapshot.files:
        return None
    return snapshot.read(path, _MAX_SIDECAR_BYTES).decode("utf-8", "replace")
