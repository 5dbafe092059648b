"""An installed Chromium without a window, spoken to in its DevTools protocol through two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_PATIENCE = 30.0
_KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, "")}


def find_browser() -> str | None:
    """Return the program, None where none is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One process; `open` gives a tab with nothing left of earlier ones."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
            "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--no-proxy-server", "--hide-scrollbars",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and writes to 4.
        numbers = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", numbers, program, *flags],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.call("Browser.close")
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Return the result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, url: str, width: int = 1100, height: int = 760) -> Tab:
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]  # fmt: skip
        tab = Tab(self, session)
        self.events.clear()
        for domain in ("Page", "Runtime", "Log"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height)
        tab.call("Page.navigate", url=url)
        tab.wait("document.readyState === 'complete'")
        return tab


class Tab:
    """A page, as somebody at keyboard and screen has it."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are waited for."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )  # fmt: skip
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = _PATIENCE) -> None:
        """Return when the expression is true."""
        end = time.monotonic() + seconds
        while not self.value(f"!!({expression})"):
            assert time.monotonic() < end, f"never true: {expression}\n{self.text()}"
            time.sleep(0.02)

    def text(self, selector: str = "body") -> str:
        """Return what can be read in the first element that fits."""
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def type(self, text: str) -> None:
        """Put text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, **modifiers: Any) -> None:
        name, code, text = _KEYS[key]
        event = {"key": name, "code": name, "windowsVirtualKeyCode": code, **modifiers}
        shown = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **shown)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """Click in the middle of an element with the mouse."""
        script = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        x, y = self.value(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )  # fmt: skip

    def choose_files(self, selector: str, *paths: Path) -> None:
        node = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", nodeId=node, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=found, files=[str(path) for path in paths])

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def emulate(self, **features: str) -> None:
        """Set media features such as prefers_color_scheme."""
        named = [{"name": name.replace("_", "-"), "value": v} for name, v in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self, wanted: Callable[[str], bool] = lambda text: True) -> list[str]:
        """Return what the browser found wrong so far: exceptions, refused scripts, failed loads."""
        self.value("0")  # whatever came before this answer has been read
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(str(details.get("exception", {}).get("description", details["text"])))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
        return [text for text in found if wanted(text)]
