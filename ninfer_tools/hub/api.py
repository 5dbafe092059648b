"""Questions to the hub's API: which commit, which files, which history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from ninfer_tools.hub.failures import explain_api_errors
from ninfer_tools.hub.reference import HubReference, is_commit

# A listing page has 1000 entries; no checkpoint comes near this many.
_MOST_PAGES = 200


def fetch_commit(reference: HubReference) -> str:
    """Return the commit (40 hexadecimal digits) that a revision means at this moment."""
    with explain_api_errors(str(reference)):
        answer, _ = _get(_url(reference, "revision"))
        commit = answer["sha"]
        if not is_commit(commit):
            raise ValueError(commit)
        return commit


def fetch_tree(reference: HubReference) -> list[dict[str, Any]]:
    """Return the records of all files of a revision: path, size, oid, and lfs where stored so."""
    with explain_api_errors(str(reference)):
        pages = list(_pages(_url(reference, "tree"), {"recursive": True}))
        return [item for page in pages for item in page if item["type"] == "file"]


def fetch_history(reference: HubReference) -> Iterator[str]:
    """Yield the commits that led to a revision, newest first, page by page as they are asked."""
    pages = _pages(_url(reference, "commits"), {})
    while True:
        with explain_api_errors(str(reference)):
            page = next(pages, None)
            commits = None if page is None else [item["id"] for item in page]
        if commits is None:
            return
        yield from commits


def _url(reference: HubReference, question: str) -> str:
    from huggingface_hub import constants

    revision = quote(reference.revision, safe="")
    return f"{constants.ENDPOINT}/api/models/{reference.repository}/{question}/{revision}"


def _pages(url: str, params: dict[str, Any]) -> Iterator[Any]:
    answer, link = _get(url, params)
    yield answer
    for _ in range(_MOST_PAGES):
        if link is None:
            return
        # The token goes with the request: no answer may send it to another host.
        if urlsplit(link)[:2] != urlsplit(url)[:2]:
            raise ValueError(link)
        answer, link = _get(link)
        yield answer


def _get(url: str, params: dict[str, Any] | None = None) -> tuple[Any, str | None]:
    # Not HfApi: its calls have no time limit, so a hub that stalls would hang the command.
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    response = get_session().get(
        url,
        params=params,
        headers=build_hf_headers(),
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        follow_redirects=True,
    )
    hf_raise_for_status(response)
    return response.json(), response.links.get("next", {}).get("url")
