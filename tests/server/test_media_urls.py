"""Media by address: a way to pictures, not into the network (HT-16, cases 76 and 78)."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from builders.fake_service import FakeCard, FakeService
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.media_urls import FetchLimits, MediaFetcher
from ninfer_runtime.server.public_address import is_public

LIMITS = FetchLimits(seconds=0.5, file_bytes=1000, hops=2)


def ask(url: str) -> list[dict]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
     "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
     "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "64:ff9b:1::1", "::127.0.0.1",
     "fd00:ec2::254"],
)  # fmt: skip
def test_addresses_inside_are_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34"])
def test_addresses_outside_are_public(address):
    assert is_public(ipaddress.ip_address(address))


INSIDE = [
    "http://127.0.0.1:{port}/x.png", "http://localhost:{port}/x.png", "http://[::1]/",
    "http://2130706433:{port}/x.png", "http://0x7f.1:{port}/x.png", "http://169.254.169.254/",
    "http://0.0.0.0:{port}/x.png", "http://user@127.0.0.1:{port}/x.png", "http://",
    "http://[::ffff:127.0.0.1]:{port}/x.png", "http://nowhere.invalid/", "https://127.0.0.1:{port}/",
    "file:///etc/hostname", "/etc/hostname", "ftp://127.0.0.1/", "x", "", "http://%zz/",
    "http://127.0.0.1:99999/", "http://exa mple/", "http://\ufffd/", "http://a..b/",
]  # fmt: skip


@pytest.mark.parametrize("allowed", [False, True])
def test_case_76_every_way_inside_gets_the_same_answer(serve, fake: FakeService, files, allowed):
    http = serve(HttpOptions(media_urls=allowed)).http
    answers = set()
    for address in INSIDE:
        messages = ask(address.format(port=files.port))
        answer = http.post("/v1/chat/completions", json={"messages": messages})
        answers.add((answer.status_code, answer.text))
    assert len(answers) == 1, answers
    ((status, text),) = answers
    assert status == 400
    assert "messages[0].content[0]" in text
    assert "invalid_media" in text
    assert not files.seen
    assert not fake.seen


class Files(ThreadingHTTPServer):
    """A server of pictures that is slow, large or elsewhere when asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port, self.seen = self.server_address[1], []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["host"]))
        kind, _, rest = self.path[1:].partition("/")
        if kind == "to":
            self.send_response(302)
            self.send_header("location", rest)
            self.end_headers()
            return
        self.send_response(200 if kind != "missing" else 404)
        self.end_headers()
        try:
            if kind == "drip":
                for _ in range(100):
                    self.wfile.write(b"x")
                    time.sleep(0.05)
            else:
                self.wfile.write(b"x" * int(rest or 10))
        except OSError:
            pass

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def files():
    server = Files()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(messages: list[dict], allowed: bool = True) -> tuple:
    """Resolve with 127.0.0.1, and only that, as a public address."""
    fetcher = MediaFetcher(allowed, LIMITS, lambda address: str(address) == "127.0.0.1")
    return asyncio.run(fetcher.resolve(messages, vision=True))


def test_a_public_picture_is_fetched_once_and_put_in_its_place(files):
    url = f"http://127.0.0.1:{files.port}/ok/1000"
    (message,) = fetch([{"role": "tool", "content": [*ask(url)[0]["content"] * 2]}])
    for part in message["content"]:
        _, _, data = part["image_url"]["url"].partition(";base64,")
        assert base64.b64decode(data) == b"x" * 1000
    assert files.seen == [("/ok/1000", f"127.0.0.1:{files.port}")]


def test_redirects_are_followed_within_the_public(files):
    home = f"http://127.0.0.1:{files.port}"
    assert fetch(ask(f"{home}/to/{home}/ok/5"))
    assert fetch(ask(f"{home}/to//ok/5"))


@pytest.mark.parametrize(
    "path",
    ["ok/1001", "missing/", "drip/", "to/http://127.0.0.2:{port}/ok/", "to/file:///etc/passwd",
     "to/http://localhost.invalid/", "to/{home}/to/{home}/to/{home}/ok/1", "to/"],
)  # fmt: skip
def test_case_76_too_large_too_slow_too_far_or_inside_is_one_refusal(files, path):
    home = f"http://127.0.0.1:{files.port}"
    begun = time.monotonic()
    with pytest.raises(ApiError) as caught:
        fetch(ask(f"{home}/{path.format(port=files.port, home=home)}"))
    assert time.monotonic() - begun < 2
    assert (caught.value.status, caught.value.code) == (400, "invalid_media")
    assert caught.value.param == "messages[0].content[0]"
    assert not any(":0" in host or "127.0.0.2" in host for _, host in files.seen)


def test_case_76_a_host_that_also_has_an_inside_address_is_refused(files, monkeypatch):
    """The address that was checked is the one connected to, and all of them are checked."""
    found = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("10.0.0.1")]

    async def resolve(host: str, port: int):
        return found

    monkeypatch.setattr("ninfer_runtime.server.media_urls.resolve_host", resolve)
    with pytest.raises(ApiError):
        fetch(ask(f"http://pictures.example:{files.port}/ok/1"))
    del found[1]
    assert fetch(ask(f"http://pictures.example:{files.port}/ok/1"))
    assert files.seen == [("/ok/1", f"pictures.example:{files.port}")]


def test_data_addresses_pass_untouched():
    messages = ask("DATA:image/png;base64,AAAA")
    assert fetch(messages, allowed=False) == tuple(messages)


def test_case_78_without_vision_the_flag_is_named(serve, fake: FakeService):
    fake.card = FakeCard(vision=False)
    for url in ("data:image/png;base64,AAAA", "http://127.0.0.1/"):
        answer: httpx.Response = serve().http.post(
            "/v1/chat/completions", json={"messages": ask(url)}
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "vision_disabled")
        assert "--vision" in error["message"]
        assert error["param"] == "messages[0].content[0]"
