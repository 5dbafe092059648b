"""A browser for all tests of the page, and a way to run its scripts without one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import pytest

from builders.browser import Browser, Tab, find_browser

_NO_BROWSER = "no Chromium is installed (Debian: apt-get install chromium)"
# What has no use for a page, in an order in which each finds what it needs.
_PURE = ("event_stream.js", "answer.js", "figures.js")
_LINKS = re.compile(r"^import [^;]*;|^export ", re.MULTILINE)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip(f"{_NO_BROWSER}: the page was not tried in a browser")
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def open_page(browser: Browser, serve: Any) -> Callable[..., Tab]:
    """Return what opens the page of a scripted server and waits until it is ready."""

    def open(*options: Any, ready: bool = True) -> Tab:
        tab = browser.open(serve(*options).url)
        if ready:
            tab.wait("document.getElementById('state').textContent === 'ready'")
        return tab

    return open


@pytest.fixture(scope="session")
def evaluate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return what gives the value of an expression over the page's scripts that need no page.

    `evaluate("name(a)", a=...)`: values go in and come out as JSON.
    """
    folder = files("ninfer_runtime.server.web")
    run = _find_engine(request)
    for name in _PURE:
        run(_LINKS.sub("", (folder / name).read_text()))

    def call(expression: str, **values: Any) -> Any:
        names = ", ".join(values)
        given = ", ".join(json.dumps(value) for value in values.values())
        return json.loads(run(f"JSON.stringify((({names}) => ({expression}))({given}))"))

    return call


def _find_engine(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    if find_spec("py_mini_racer") is not None:
        from py_mini_racer import MiniRacer  # pyright: ignore[reportMissingImports]

        return MiniRacer().eval
    return request.getfixturevalue("browser").open("about:blank").value
