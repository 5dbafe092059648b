"""A model hub on 127.0.0.1: its API, its redirects to a content host, and its bad days.

Two servers run in threads: the hub (API and `resolve`) and the content host on another port, so
on another origin, where large files lie under their SHA-256. Spoken as by huggingface.co: commit
and listing (with pages), history, `resolve` with ETag, X-Repo-Commit, X-Linked-Etag and
X-Linked-Size, ranges, X-Error-Code. Faults are used up one per request, in the order given.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

# What is larger, or named like weights, is stored by SHA-256 on the content host.
_SMALL_BYTES = 4096
_API = re.compile(r"/api/models/([^/]+/[^/]+)/(revision|tree|commits|paths-info)/([^/]+)")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class Request:
    """One request as it came in, and how many content bytes were sent for it."""

    host: str
    method: str
    path: str
    range: str | None
    token: str | None
    sent: int = 0


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one content request.

    `status` answers with an error; `cut` closes the connection after so many bytes; `stall` waits
    so many seconds instead of sending; `html` sends a login page; `whole` ignores the range;
    `content` sends other bytes of the same length; `more` sends bytes beyond the file's end.
    """

    status: int | None = None
    cut: int | None = None
    stall: float | None = None
    html: bool = False
    whole: bool = False
    content: bytes | None = None
    more: bytes = b""


@dataclass
class Repository:
    """Commits, newest last, and names that point to them."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    gated: bool = False


class HubServer:
    """The hub and its content host; use as a context manager."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.moves: list[tuple[str, str, str]] = []
        self.page_entries = 1000
        self.api_html = False
        self.blobs: dict[str, bytes] = {}
        self.names: dict[str, str] = {}
        self._hub = _start(self, "hub")
        self._content = _start(self, "content")

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *error: object) -> None:
        for server in (self._hub, self._content):
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_address[1]}"

    @property
    def content_url(self) -> str:
        return f"http://127.0.0.1:{self._content.server_address[1]}"

    def commit(self, repository: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit, move the branch to it and return its 40 digits."""
        repo = self.repositories.setdefault(repository, Repository())
        seed = f"{repository}{len(repo.commits)}".encode()
        commit = hashlib.sha1(seed).hexdigest()
        repo.commits[commit] = dict(files)
        repo.branches[branch] = commit
        for name, data in files.items():
            if is_large(name, data):
                digest = hashlib.sha256(data).hexdigest()
                self.blobs[digest], self.names[digest] = data, name
        return commit

    def fail(self, name: str, *faults: Fault) -> None:
        """Let the next content requests for a file go wrong, one after the other."""
        self.faults[name] += faults

    def move_after_listing(self, repository: str, branch: str, commit: str) -> None:
        """Let the branch move as soon as the files of any of its commits were listed."""
        self.moves.append((repository, branch, commit))

    def content_requests(self, name: str) -> list[Request]:
        """Return the requests that were to bring bytes of a file, in order."""
        digests = {digest for digest, own in self.names.items() if own == name}
        return [
            item
            for item in self.requests
            if item.method == "GET"
            and (item.path.endswith(f"/{name}") or item.path.rpartition("/")[2] in digests)
        ]

    def sent(self, name: str) -> int:
        """Return how many bytes of a file left the house."""
        return sum(item.sent for item in self.content_requests(name))


def is_large(name: str, data: bytes) -> bool:
    return len(data) > _SMALL_BYTES or name.endswith((".safetensors", ".ninfer"))


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _start(hub: HubServer, host: str) -> ThreadingHTTPServer:
    handler = type("Handler", (_Handler,), {"hub": hub, "host": host})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # HTTPServer's own asks the name service for this host's name, which can take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    host: str
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = parts.path
        self.record = Request(
            self.host,
            self.command,
            unquote(path),
            self.headers.get("Range"),
            self.headers.get("Authorization"),
        )
        self.hub.requests.append(self.record)
        # The client hangs up on purpose in many tests.
        with suppress(ConnectionError):
            if self.host == "content":
                self._content(path.rpartition("/")[2])
            elif match := _API.fullmatch(path):
                self._api(match[1], match[2], unquote(match[3]), parse_qs(parts.query))
            elif match := _RESOLVE.fullmatch(path):
                self._resolve(match[1], unquote(match[2]), unquote(match[3]))
            else:
                self._error(404, "RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.do_GET()

    def log_message(self, *arguments: object) -> None:
        pass

    # The API.

    def _api(self, name: str, question: str, revision: str, query: dict[str, Any]) -> None:
        if self.hub.api_html:
            self._send(200, b"<html>please log in</html>", {"Content-Type": "text/html"})
            return
        found = self._find(name, revision)
        if found is None:
            return
        repo, commit = found
        if question == "revision":
            files = [{"rfilename": path} for path in repo.commits[commit]]
            self._json({"id": name, "sha": commit, "siblings": files, "private": False})
        elif question == "paths-info":
            self._json([r for r in _tree(repo.commits[commit]) if r["path"] in self.form["paths"]])
        elif question == "commits":
            older = list(repo.commits)[: list(repo.commits).index(commit) + 1]
            records = [
                {"id": item, "title": "", "message": "", "authors": [], "date": _DATE}
                for item in reversed(older)
            ]
            self._page(records, query)
        else:
            self._page(_tree(repo.commits[commit]), query)
            for move in [move for move in self.hub.moves if move[0] == name]:
                self.hub.moves.remove(move)
                repo.branches[move[1]] = move[2]

    def _find(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repo = self.hub.repositories.get(name)
        allowed = repo is not None and repo.token in (
            None,
            (self.record.token or "").removeprefix("Bearer "),
        )
        if repo is None or (not allowed and not repo.gated):
            self._error(401 if self.record.token is None else 404, "RepoNotFound")
            return None
        if not allowed:
            self._error(403, "GatedRepo")
            return None
        commit = repo.branches.get(revision, revision)
        commit = next(
            (item for item in repo.commits if len(commit) > 6 and item.startswith(commit)), None
        )
        if commit is None:
            self._error(404, "RevisionNotFound")
            return None
        return repo, commit

    def _page(self, records: list[dict[str, Any]], query: dict[str, Any]) -> None:
        begin = int(query.get("cursor", ["0"])[0])
        end = begin + self.hub.page_entries
        headers = {}
        if end < len(records):
            url = f"{self.hub.url}{urlsplit(self.path).path}?recursive=true&cursor={end}"
            headers["Link"] = f'<{url}>; rel="next"'
        self._json(records[begin:end], headers)

    # Content.

    def _resolve(self, name: str, revision: str, path: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return
        repo, commit = found
        data = repo.commits[commit].get(path)
        if data is None:
            self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        headers = {"X-Repo-Commit": commit}
        if not is_large(path, data):
            self._bytes(path, data, {**headers, "ETag": f'"{git_oid(data)}"'})
            return
        digest = hashlib.sha256(data).hexdigest()
        headers |= {
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(data)),
            "ETag": f'"{git_oid(data)}"',
            "Location": f"{self.hub.content_url}/store/{digest}?signature=x",
        }
        self._send(302, b"Found. Redirecting", headers)

    def _content(self, digest: str) -> None:
        self._bytes(self.hub.names[digest], self.hub.blobs[digest], {"ETag": f'"{digest}"'})

    def _bytes(self, name: str, data: bytes, headers: dict[str, str]) -> None:
        fault = Fault()
        if self.command == "GET" and self.hub.faults[name]:
            fault = self.hub.faults[name].pop(0)
        if fault.status is not None:
            self._send(fault.status, b"", headers)
            return
        if fault.html:
            page = b"<html>please log in</html>"
            self._send(200, page, {"Content-Type": "text/html; charset=utf-8"})
            return
        begin, end, status = 0, len(data), 200
        match = _RANGE.fullmatch(self.record.range or "")
        if match and not fault.whole:
            begin, end, status = int(match[1]), min(int(match[2] or end - 1) + 1, end), 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
            if begin >= len(data):
                self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
        body = (fault.content or data)[begin:end] + fault.more
        if fault.more:
            headers["Connection"] = "close"
        self._send(status, body, headers, fault)

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], fault: Fault | None = None
    ) -> None:
        fault = fault or Fault()
        self.send_response(status)
        if not fault.more:
            self.send_header("Content-Length", str(len(body)))
        for key, value in {"Content-Type": "application/octet-stream", **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = len(body) if fault.cut is None else fault.cut
        self.wfile.write(body[:cut])
        self.wfile.flush()
        if status in (200, 206):
            self.record.sent += len(body[:cut])
        if fault.stall is not None:
            time.sleep(fault.stall)
        if cut < len(body) or fault.more:
            self.close_connection = True

    def _json(self, record: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(record).encode()
        self._send(200, body, {"Content-Type": "application/json", **(headers or {})})

    def _error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": code}).encode()
        kind = {"Content-Type": "application/json", "X-Error-Code": code, "X-Error-Message": code}
        self._send(status, body, {**kind, **(headers or {})})


_DATE = "2026-08-01T00:00:00.000Z"


def _tree(files: dict[str, bytes]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for path, data in sorted(files.items()):
        record: dict[str, Any] = {"type": "file", "path": path, "size": len(data)}
        record["oid"] = git_oid(data)
        if is_large(path, data):
            digest = hashlib.sha256(data).hexdigest()
            record["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 130}
        records.append(record)
    folders = {path.rpartition("/")[0] for path in files if "/" in path}
    return [{"type": "directory", "path": path, "oid": "0" * 40} for path in folders] + records
