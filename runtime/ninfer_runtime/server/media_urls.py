"""Images and videos that messages name by address: fetched with care, or refused."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.public_address import Address, is_public, resolve_host

_KEYS = ("image_url", "image", "video_url", "video")
_REDIRECTS = (301, 302, 303, 307, 308)
_AT_ONCE = 4


@dataclass(frozen=True)
class FetchLimits:
    """`seconds` for one medium with all its redirects, `file_bytes` of one, `hops` of one."""

    seconds: float = 20.0
    file_bytes: int = 64 << 20
    hops: int = 3


class MediaFetcher:
    """Turns http(s) addresses in messages into data: addresses.

    Every host is resolved here, its address checked and that very address connected to, again for
    each redirect. Whatever goes wrong gets one message: it does not say what the network has.
    """

    def __init__(
        self,
        allowed: bool,
        limits: FetchLimits | None = None,
        public: Callable[[Address], bool] = is_public,
    ) -> None:
        self._allowed, self._public = allowed, public
        self._limits = limits or FetchLimits()

    async def resolve(
        self, messages: Sequence[Mapping[str, Any]], vision: bool
    ) -> tuple[Mapping[str, Any], ...]:
        """Return the messages with data: addresses only.

        ApiError 400 naming the part: `vision_disabled` without vision, `invalid_media` for
        anything but data: and, where allowed, http(s) addresses that can be fetched.
        """
        places = list(_list_media(messages))
        if places and not vision:
            where = places[0][0]
            message = f"{where}: images and videos need a server started with --vision"
            raise invalid(message, where, "vision_disabled")
        found = await self._fetch_all(places)
        if not found:
            return tuple(messages)
        return tuple(_replace_media(message, found) for message in messages)

    async def _fetch_all(self, places: list[tuple[str, str]]) -> dict[str, str]:
        remote: dict[str, str] = {}
        for where, url in places:
            if not _is_data(url):
                if not self._allowed or not url.lower().startswith(("http://", "https://")):
                    raise _refuse(where)
                remote.setdefault(url, where)
        turns = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = {url: group.create_task(self._try(url, turns)) for url in remote}
        fetched = {url: task.result() for url, task in tasks.items()}
        for url, data in fetched.items():
            if data is None:
                raise _refuse(remote[url])
        return {url: data for url, data in fetched.items() if data is not None}

    async def _try(self, url: str, turns: asyncio.Semaphore) -> str | None:
        try:
            async with turns, asyncio.timeout(self._limits.seconds):
                data = await self._fetch(url)
        except (OSError, TimeoutError, ValueError, httpx.HTTPError, httpx.InvalidURL):
            return None
        text = await asyncio.to_thread(base64.b64encode, data)
        return f"data:application/octet-stream;base64,{text.decode()}"

    async def _fetch(self, address: str) -> bytes:
        url = httpx.URL(address)
        timeout = httpx.Timeout(self._limits.seconds)
        # The environment may name a proxy, and proxies resolve hosts themselves.
        async with httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
            for _ in range(self._limits.hops + 1):
                request = await self._build(client, url)
                response = await client.send(request, stream=True)
                try:
                    if response.status_code == 200:
                        return await self._read(response)
                    if response.status_code not in _REDIRECTS:
                        raise ValueError("not found")
                    url = url.join(response.headers["location"])
                except KeyError:
                    raise ValueError("redirect to nowhere") from None
                finally:
                    await response.aclose()
        raise ValueError("too many redirects")

    async def _build(self, client: httpx.AsyncClient, url: httpx.URL) -> httpx.Request:
        """Return the request that connects to a checked address under the host's name."""
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise ValueError("not an address to fetch")
        addresses = await resolve_host(url.host, url.port or 0)
        if not addresses or not all(self._public(address) for address in addresses):
            raise ValueError("not a public address")
        headers = {"host": url.netloc.decode("ascii"), "accept-encoding": "identity"}
        target = url.copy_with(host=str(addresses[0]))
        return client.build_request(
            "GET", target, headers=headers, extensions={"sni_hostname": url.host}
        )

    async def _read(self, response: httpx.Response) -> bytes:
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > self._limits.file_bytes:
                raise ValueError("too large")
        return bytes(data)


def _list_media(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Give the place and the address of every image and video."""
    for i, message in enumerate(messages):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            for key in _KEYS:
                url = _read_url(part, key)
                if url is not None:
                    yield f"messages[{i}].content[{j}]", url


def _read_url(part: Any, key: str) -> str | None:
    value = part.get(key) if isinstance(part, Mapping) else None
    value = value.get("url") if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else None


def _replace_media(message: Mapping[str, Any], found: Mapping[str, str]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_replace_part(part, found) for part in content]}


def _replace_part(part: Any, found: Mapping[str, str]) -> Any:
    urls = {key: _read_url(part, key) for key in _KEYS}
    named = {key: found[url] for key, url in urls.items() if url is not None and url in found}
    return {**part, **{key: {"url": data} for key, data in named.items()}} if named else part


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def _refuse(where: str) -> ApiError:
    message = (
        f"{where}: the address cannot be used; send the file as a data: URL (http and https "
        "addresses need a server started with --allow-media-urls, a public host and a file "
        "within the limits)"
    )
    return invalid(message, where, "invalid_media")
