"""Convert the bundled model, inspect it, serve it and ask it three questions; see `quickstart`."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import Question, read_chat, read_vision

_ASKED = ("needle/think/000", "tool/no_think/000", "image/position/000")
_TITLES = ("A text question, with thinking", "A tool question", "An image question")
_SERVE = ("--vision", "--spec", "mtp", "--draft-tokens", "3", "--lm-head-draft")
_START_SECONDS = 300.0
_STOP_SECONDS = 15.0
# Whatever proxy is set, this server is on this machine.
_HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> int:
    options = _read_options()
    # Ended from outside, the server must not stay behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with tempfile.TemporaryDirectory() as folder:
            place = options.keep or Path(folder)
            place.mkdir(parents=True, exist_ok=True)
            return _tour(place / "demo.ninfer", options)
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running", file=sys.stderr)
        return 130


def _tour(file: Path, options: argparse.Namespace) -> int:
    began = time.monotonic()
    checkpoint = locate_demo("checkpoint")
    _run("convert", checkpoint, "--out", file, "--proposal-rows", "1024", "--force")
    _run("inspect", file)
    with _serve(file, options.device) as url:
        right = [_ask(url, title, _find(id)) for title, id in zip(_TITLES, _ASKED, strict=True)]
    print(f"\nserver stopped; {sum(right)} of {len(right)} answers right", end=", ")
    print(f"{time.monotonic() - began:.0f} s in all")
    if options.keep:
        program = Path(sys.executable).with_name("ninfer")
        print("\nGo on with a page to chat on, at http://127.0.0.1:8080 after")
        print(f"    {_shorten(program)} serve {_shorten(file)} {' '.join(_SERVE)}")
    return 0 if all(right) else 1


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart", description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the artifact stays")
    parser.add_argument("--device", default="cpu", help="as of ninfer serve; cpu works anywhere")
    return parser.parse_args()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _run(*arguments: Any) -> None:
    """Show and run a command; its failure ends the tour."""
    command = _announce(*arguments)
    code = subprocess.run(command).returncode
    if code:
        sys.exit(f"error: ninfer {arguments[0]} ended with {code}")


def _announce(*arguments: Any) -> list[str]:
    words = [str(each) for each in arguments]
    print(f"\n$ ninfer {' '.join(map(_shorten, words))}", flush=True)
    return [sys.executable, "-m", "ninfer_tools", *words]


def _shorten(path: Any) -> str:
    """Return a path as one would type it here."""
    text = str(path)
    if not text.startswith("/"):
        return text
    near = os.path.relpath(text)
    return near if len(near) < len(text) else text


@contextlib.contextmanager
def _serve(file: Path, device: str) -> Iterator[str]:
    """Run a server; give its address when it is ready, stop it at the end."""
    port = _find_port()
    command = _announce("serve", file, "--port", port, "--device", device, *_SERVE)
    with tempfile.TemporaryFile("w+") as log:
        # In a session of its own: Ctrl-C is for the tour, which then stops the server.
        # Several threads only get in each other's way with matrices as small as these.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        server = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env=environment
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_ready(server, url, log)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _find_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _wait_ready(server: subprocess.Popen[bytes], url: str, log: Any) -> None:
    began = time.monotonic()
    while time.monotonic() < began + _START_SECONDS and server.poll() is None:
        with contextlib.suppress(OSError):  # not yet listening, or still loading
            _HTTP.open(f"{url}/health", timeout=5).close()
            print(f"ready after {time.monotonic() - began:.1f} s at {url}")
            return
        time.sleep(0.1)
    log.seek(0)
    sys.exit(f"{log.read()}\nerror: the server did not start; its output is above")


def _find(id: str) -> Question:
    return next(item for item in (*read_chat(), *read_vision()) if item.id == id)


def _ask(url: str, title: str, question: Question) -> bool:
    """Ask, show question and answer, and return whether the answer is right."""
    body = {
        "messages": _put_pictures(question), "tools": question.tools, "temperature": 0,
        "enable_thinking": question.think, "max_tokens": 200,
    }  # fmt: skip
    answer = _post(f"{url}/v1/chat/completions", body)
    message, timings = answer["choices"][0]["message"], answer["timings"]
    print(f"\n{title}\n{_indent(_read_text(question), '  > ')}")
    if message.get("reasoning_content"):
        print(_indent(f"(thinks: {message['reasoning_content'].strip()})", "  "))
    print(_indent(_read_answer(message), "  "))
    right = _judge(message, question.answer)
    speed = f"{timings['predicted_per_second']:.1f} tok/s"
    drafts = f"{timings['draft_n_accepted']} of {timings['draft_n']} drafts accepted"
    print(f"  [{'right' if right else f'WRONG, want {question.answer}'}; {speed}, {drafts}]")
    return right


def _put_pictures(question: Question) -> list[dict[str, Any]]:
    pictures = iter(question.media)
    messages = []
    for message in question.messages:
        content = message["content"]
        if isinstance(content, list):
            content = [_put_picture(part, pictures) for part in content]
        messages.append({**message, "content": content})
    return messages


def _put_picture(part: dict[str, Any], pictures: Iterator[bytes]) -> dict[str, Any]:
    if part["type"] != "image":
        return part
    data = base64.b64encode(next(pictures)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with _HTTP.open(request, timeout=300) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        sys.exit(f"error: the server answers {error.code}: {error.read().decode()[:500]}")


def _read_text(question: Question) -> str:
    content = question.messages[-1]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "[a picture]") for part in content)


def _read_answer(message: dict[str, Any]) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    lines = [f"calls {call['name']} {call['arguments']}" for call in calls]
    return "\n".join([*filter(None, [message["content"]]), *lines])


def _judge(message: dict[str, Any], wanted: str | dict[str, Any]) -> bool:
    if isinstance(wanted, str):
        return (message["content"] or "").strip() == wanted
    found = [call["function"] for call in message.get("tool_calls", ())]
    return [{**call, "arguments": json.loads(call["arguments"])} for call in found] == [wanted]


def _indent(text: str, front: str) -> str:
    return "\n".join(front + line for line in text.splitlines())


if __name__ == "__main__":
    sys.exit(main())
