"""Failures of the hub and of the network as one line for people."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ninfer_formats.errors import NinferError, UsageError

_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class RevisionMissingError(UsageError):
    """The repository is there, the revision is not."""


class UnreachableError(NinferError):
    """The hub did not answer: no network, offline mode, a time limit, or a server in trouble."""


@contextmanager
def explain_hub_errors(subject: str) -> Iterator[None]:
    """Turn whatever the hub client raises in the block into a NinferError about `subject`."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except HfHubHTTPError as error:
        raise _explain_answer(subject, error) from error
    except OfflineModeIsEnabled as error:
        raise UnreachableError(
            "offline mode is on, so the hub is not asked",
            where=subject,
            remedy="unset HF_HUB_OFFLINE",
        ) from error
    except HTTPError as error:
        raise _explain_transport(subject, error) from error


@contextmanager
def explain_api_errors(subject: str) -> Iterator[None]:
    """Like `explain_hub_errors`, for a block that also takes the answer's JSON apart."""
    try:
        with explain_hub_errors(subject):
            yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NinferError(
            "the answer is not that of a model hub (a login page or a proxy in between?)",
            where=subject,
            remedy="check HF_ENDPOINT and the network",
        ) from error


def is_transient(error: Any) -> bool:
    """Tell whether the same request may succeed in a moment."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _TRANSIENT_STATUS
    return isinstance(error, HTTPError)


def short_reason(error: Exception) -> str:
    """Return what went wrong in a few words."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"status {status}"
    return str(error).strip() or type(error).__name__


def _explain_answer(subject: str, error: Any) -> NinferError:
    from huggingface_hub import errors

    status = error.response.status_code
    if isinstance(error, errors.GatedRepoError):
        return NinferError(
            "access to this repository must be granted first",
            where=subject,
            remedy="accept its terms on its page and set HF_TOKEN",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return RevisionMissingError("the repository has no such revision", where=subject)
    if isinstance(error, errors.EntryNotFoundError):
        return UsageError("the repository has no such file at this revision", where=subject)
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return UsageError(
            "no such repository, or it is private",
            where=subject,
            remedy="check the name; for a private one set HF_TOKEN",
        )
    if status in (401, 403):
        return NinferError(
            "the hub refuses access",
            where=subject,
            got=f"status {status}",
            remedy="check HF_TOKEN and its permissions",
        )
    if status in _TRANSIENT_STATUS:
        return UnreachableError(
            "the hub is in trouble or limits requests",
            where=subject,
            got=f"status {status}",
            remedy="try again later",
        )
    return NinferError("the hub refuses the request", where=subject, got=f"status {status}")


def _explain_transport(subject: str, error: Exception) -> NinferError:
    name = type(error).__name__
    if "Timeout" in name:
        what = "the hub does not answer in time"
    elif "RemoteProtocol" in name or "Read" in name:
        what = "the connection was cut"
    elif "Redirect" in name:
        what = "the hub redirects without end"
    else:
        what = "the hub cannot be reached"
    return UnreachableError(
        what,
        where=subject,
        got=short_reason(error),
        remedy="check the network, HF_ENDPOINT and proxy settings, then run the same command again",
    )
