"""The shared cache of the hub client: downloads into it, and what lies in it already."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable
from pathlib import Path

from ninfer_formats.errors import NinferError
from ninfer_tools.hub.failures import explain_hub_errors
from ninfer_tools.hub.listing import match_names
from ninfer_tools.hub.progress import plain_line_bar
from ninfer_tools.hub.reference import HubReference

_INDEX = "model.safetensors.index.json"
_MAX_INDEX_BYTES = 256 << 20


def find_folder(pinned: HubReference) -> Path | None:
    """Return the snapshot folder of a commit in the shared cache, None when there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import IncompleteSnapshotError, LocalEntryNotFoundError

    try:
        found = snapshot_download(
            pinned.repository, revision=pinned.revision, local_files_only=True
        )
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)
    except LocalEntryNotFoundError:
        return None
    return Path(found)


def download_into_cache(pinned: HubReference, names: list[str], online: bool) -> Path:
    """Return the snapshot folder after bringing `names` into it; offline, the folder as it is.

    Transfers are the hub client's own: parallel, in chunks where the hub offers that, with its
    progress bars on a terminal. Raises NinferError.
    """
    if not online:
        folder = find_folder(pinned)
        if folder is None:
            raise NinferError("nothing of it is in the local cache", where=str(pinned))
        return folder
    with explain_hub_errors(str(pinned)):
        return Path(_download(pinned, names))


def _download(pinned: HubReference, names: list[str]) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        return snapshot_download(
            pinned.repository,
            revision=pinned.revision,
            allow_patterns=[glob.escape(name) for name in names],
            tqdm_class=plain_line_bar(),
        )
    except LocalEntryNotFoundError as error:
        # The client says "not in the cache" where the point is what the network did.
        raise error.__cause__ or _not_stored(pinned, error) from error
    except (HfHubHTTPError, OfflineModeIsEnabled):
        raise
    except OSError as error:
        raise _not_stored(pinned, error) from error


def _not_stored(pinned: HubReference, error: OSError) -> NinferError:
    return NinferError(
        "the download stopped; whole files are kept in the shared cache",
        where=str(pinned),
        got=error.strerror or str(error).partition("\n")[0],
        remedy="free disk space or check the network, then run the same command again",
    )


def missing_shards(folder: Path, patterns: Iterable[str]) -> list[str]:
    """Return the wanted shards that the folder's safetensors index names but that are not there."""
    try:
        text = (folder / _INDEX).read_bytes()
        shards = set(json.loads(text[:_MAX_INDEX_BYTES])["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    wanted = match_names(sorted(name for name in shards if isinstance(name, str)), patterns)
    return [name for name in wanted if not (folder / name).exists()]
