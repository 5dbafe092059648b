"""The page as it is sent (HT-20)."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from ninfer_runtime.server.http_options import HttpOptions

ROOT = Path(__file__).parents[3]
FOLDER = files("ninfer_runtime.server.web")
FILES = {item.name: item.read_text() for item in FOLDER.iterdir() if item.is_file()}
PARTS = {name: text for name, text in FILES.items() if not name.endswith((".py", ".pyc"))}
SCRIPTS = {name: text for name, text in PARTS.items() if name.endswith(".js")}
PAGE = PARTS["index.html"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def test_the_page_is_sent_with_a_policy_that_lets_only_its_own_files_run(http):
    answer = http.get("/")
    assert answer.status_code == 200 and answer.text == PAGE
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert http.head("/").status_code == 200


@pytest.mark.parametrize("name", sorted(set(PARTS) - {"index.html"}))
def test_every_part_is_sent_as_what_it_is(http, name):
    answer = http.get(f"/web/{name}")
    assert answer.status_code == 200 and answer.text == PARTS[name]
    kind = "javascript" if name.endswith(".js") else "css"
    assert answer.headers["content-type"] == f"text/{kind}; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "path",
    ["/web/page.py", "/web/__init__.py", "/web/index.html", "/web/none.js", "/web/",
     "/web/..%2Fapp.py", "/web/%2e%2e/app.py", "/web//etc/passwd"],
)  # fmt: skip
def test_nothing_else_is_sent(http, path):
    assert http.get(path).status_code == 404


@pytest.mark.parametrize("state", [("loading", 42.0), ("failed", "no memory"), ("stopping", 0)])
def test_without_an_engine_the_page_comes_with_503_and_its_parts_as_ever(fake, http, state):
    fake.status = state
    answer = http.get("/")
    assert (answer.status_code, answer.text) == (503, PAGE)
    assert answer.headers["retry-after"] == "2"
    assert http.get("/web/main.js").status_code == 200
    assert http.get("/slots").status_code == 503


def test_the_page_needs_no_key_and_what_it_shows_does(serve):
    http = serve(HttpOptions(keys=("one",))).http
    assert http.get("/").status_code == http.get("/web/main.js").status_code == 200
    for path in ("/props", "/slots", "/metrics", "/v1/models"):
        assert http.get(path).status_code == 401


def test_every_file_that_is_named_is_there_and_none_is_left_over():
    named = set(re.findall(r'(?:src|href)="web/([^"]+)"', PAGE))
    for text in SCRIPTS.values():
        named |= set(re.findall(r'from "\./([^"]+)"', text))
    assert named == set(PARTS) - {"index.html"}


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_from_outside():
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", PAGE) == []
    for name, text in PARTS.items():
        assert not re.search(r"https?:|[\"'(]//|@import|url\(", text), name


def test_scripts_never_make_markup_or_code_of_text():
    for name, text in SCRIPTS.items():
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|"
            r"createContextualFragment|\beval\b|new Function|setAttribute|javascript:",
            text,
        )
        assert found == [], name


def test_scripts_find_every_element_they_look_for():
    ids = set(re.findall(r'\bid="([^"]+)"', PAGE))
    wanted = {id for text in SCRIPTS.values() for id in re.findall(r'find\("([^"]+)"\)', text)}
    assert wanted and wanted <= ids
    assert set(re.findall(r'\bfor="([^"]+)"', PAGE)) <= ids


def test_an_installed_package_has_all_parts():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = build["tool"]["setuptools"]["package-data"]["ninfer_runtime.server.web"]
    assert {f"*{Path(name).suffix}" for name in PARTS} == set(patterns)
