"""A repository at one commit: its files by range, or downloaded into the shared cache."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.hub.api import fetch_commit, fetch_tree
from ninfer_tools.hub.byte_ranges import read_remote_range, read_safetensors_header
from ninfer_tools.hub.cached_snapshot import download_into_cache, find_folder, missing_shards
from ninfer_tools.hub.client import require_client
from ninfer_tools.hub.failures import UnreachableError
from ninfer_tools.hub.listing import (
    HubFile,
    match_names,
    name_some,
    read_cached_tree,
    read_folder,
    read_tree,
)
from ninfer_tools.hub.reference import HubReference

_MAX_SMALL_BYTES = 256 << 20


@dataclass(frozen=True)
class HubSnapshot:
    """A repository at one commit. `online` is False when only the local cache answers."""

    reference: HubReference
    commit: str
    files: Mapping[str, HubFile]
    online: bool

    @property
    def pinned(self) -> HubReference:
        """The same repository by its commit."""
        return HubReference(self.reference.repository, self.commit)

    def describe(self) -> str:
        """Return the sentence a command prints before it works with the snapshot."""
        source = "" if self.online else " (from the local cache alone)"
        if self.reference.is_pinned:
            return f"{self.pinned}{source}"
        return f"{self.reference} is commit {self.commit}{source}"

    def as_record(self) -> dict[str, object]:
        """Return what a report keeps, so that the same bytes can be found again."""
        return {
            "repository": self.reference.repository,
            "revision": self.reference.revision,
            "commit": self.commit,
            "pinned": self.reference.is_pinned,
        }

    def file(self, name: str) -> HubFile:
        """Return a file's facts; UsageError when the commit has no such file."""
        if name not in self.files:
            raise UsageError(
                "the repository has no such file at this revision",
                where=str(self.pinned),
                got=name,
                want=name_some(self.files),
            )
        return self.files[name]

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        """Return bytes `begin` to `end` (exclusive, cut at the file's end) of a file.

        A file in the shared cache is read there; otherwise only this range is asked of the hub.
        """
        file = self.file(name)
        end = min(end, file.bytes)
        cached = self._cached(name)
        if cached is not None:
            with cached.open("rb") as stream:
                stream.seek(begin)
                return stream.read(max(0, end - begin))
        return read_remote_range(
            self.reference.repository, self.commit, name, file.bytes, begin, end
        )

    def read(self, name: str, limit: int = _MAX_SMALL_BYTES) -> bytes:
        """Return a whole file of at most `limit` bytes, checked against its digest."""
        file = self.file(name)
        if file.bytes > limit:
            raise NinferError(
                "the file is too large",
                where=f"{self.pinned}/{name}",
                got=f"{file.bytes} bytes",
                want=f"at most {limit} bytes",
            )
        content = self.read_range(name, 0, file.bytes)
        _check_content(file, content, f"{self.pinned}/{name}")
        return content

    def read_header(self, name: str) -> bytes:
        """Return the JSON header of a safetensors file, without reading any weight."""
        file = self.file(name)
        return read_safetensors_header(
            lambda begin, end: self.read_range(name, begin, end),
            file.bytes,
            f"{self.pinned}/{name}",
        )

    def download(self, patterns: Iterable[str]) -> Path:
        """Return the folder of the shared cache in which all files that match a pattern lie.

        What is there already is not downloaded again. Raises NinferError naming the missing files
        when the hub cannot be asked, and UsageError when a pattern without `*` has no file.
        """
        wanted = list(patterns)
        names = match_names(self.files, wanted)
        absent = [item for item in wanted if not set(item) & set("*?[") and item not in names]
        if self.online and absent:
            self.file(absent[0])
        folder = download_into_cache(self.pinned, names, self.online)
        if not self.online:
            missing = [*absent, *missing_shards(folder, wanted)]
            missing += [name for name in names if not (folder / name).exists()]
            _refuse_partial_cache(self.pinned, list(dict.fromkeys(missing)))
        return folder

    def _cached(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.reference.repository, name, revision=self.commit)
        return Path(found) if isinstance(found, str) else None


def open_snapshot(reference: HubReference, *, require_pinned: bool = False) -> HubSnapshot:
    """Resolve a reference to its commit and list the commit's files, without downloading any.

    When the hub cannot be asked (HF_HUB_OFFLINE, no network) the shared cache answers as far as
    it can. Raises UsageError for a revision that is not a commit when `require_pinned` is set,
    and for a repository or revision that does not exist; NinferError for the rest.
    """
    require_client()
    online = True
    try:
        commit = reference.revision if reference.is_pinned else fetch_commit(reference)
        _refuse_unpinned(reference, commit, require_pinned)
        pinned = HubReference(reference.repository, commit)
        files = read_tree(fetch_tree(pinned))
    except UnreachableError as error:
        online = False
        commit = _cached_commit(reference, error)
        _refuse_unpinned(reference, commit, require_pinned)
        files = _cached_files(HubReference(reference.repository, commit), error)
    else:
        _remember_revision(reference, commit)
    return HubSnapshot(reference, commit, files, online)


def _refuse_unpinned(reference: HubReference, commit: str, require_pinned: bool) -> None:
    if require_pinned and not reference.is_pinned:
        raise UsageError(
            "the revision is a branch or a tag, which can move",
            where=str(reference),
            want="a commit of 40 hexadecimal digits",
            remedy=f"write {reference.repository}@{commit}",
        )


def _cached_commit(reference: HubReference, error: UnreachableError) -> str:
    from huggingface_hub import HfApi

    if reference.is_pinned:
        return reference.revision
    try:
        found = HfApi().resolve_revision(
            reference.repository, revision=reference.revision, local_files_only=True
        )
    except Exception:  # whatever the cache lacks, being offline is what the user can mend
        raise error from None
    return found.resolved


def _cached_files(pinned: HubReference, error: UnreachableError) -> Mapping[str, HubFile]:
    listed = read_cached_tree(pinned.repository, pinned.revision)
    if listed is not None:
        return listed
    folder = find_folder(pinned)
    if folder is None:
        raise error
    return read_folder(folder)


def _remember_revision(reference: HubReference, commit: str) -> None:
    """Note branch -> commit in the shared cache, where every user of it looks when offline."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    if reference.is_pinned:
        return
    folder = repo_folder_name(repo_id=reference.repository, repo_type="model")
    target = Path(constants.HF_HUB_CACHE, folder, "refs", reference.revision)
    draft = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    # A read-only or full cache costs the convenience, not the command.
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(commit, encoding="ascii")
        draft.replace(target)


def _check_content(file: HubFile, content: bytes, where: str) -> None:
    from ninfer_tools.hub.digests import git_blob_id

    want = file.identity
    got = hashlib.sha256(content).hexdigest() if file.sha256 else git_blob_id(content)
    if want and got != want:
        raise NinferError("the content does not have its digest", where=where, got=got, want=want)


def _refuse_partial_cache(pinned: HubReference, missing: list[str]) -> None:
    if missing:
        raise NinferError(
            f"the local cache has only a part of it; missing: {name_some(missing)}",
            where=str(pinned),
            remedy="run the same command once with the network (unset HF_HUB_OFFLINE)",
        )
