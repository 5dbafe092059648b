"""A hub on this machine, the client library pointed at it, and calls of `ninfer pull`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import close_session, constants
from typer.testing import CliRunner

from builders.answers import Answer
from builders.artifact_bytes import save_multi_file, save_small
from builders.hub_server import HubServer
from ninfer_tools.cli import app

REPOSITORY = "someone/Model-NInfer"


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as found:
        yield found


@pytest.fixture
def pauses() -> list[float]:
    """The pauses between attempts, which are not really made."""
    return []


@pytest.fixture
def hub(
    server: HubServer, pauses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    """The server, with the library's settings as HF_ENDPOINT and HF_HOME would make them.

    The library reads its environment once, when it is imported; test_environment.py shows in
    processes of their own that the variables do the same.
    """
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 5)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    clock = SimpleNamespace(sleep=pauses.append)
    monkeypatch.setattr("ninfer_tools.hub.transfer.time", clock)
    monkeypatch.setattr("ninfer_tools.hub.byte_ranges.time", clock)
    yield server
    close_session()


@pytest.fixture
def pull(hub: HubServer, tmp_path: Path) -> Callable[..., Answer]:
    """Run `ninfer pull` with some arguments, into `tmp_path/out`."""

    def call(*arguments: object) -> Answer:
        line = ["pull", *map(str, arguments), "--to", str(tmp_path / "out")]
        result = CliRunner().invoke(app, line)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a small legal artifact in one file."""
    return save_small(tmp_path_factory.mktemp("small")).read_bytes()


@pytest.fixture(scope="session")
def split_artifact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small legal artifact: an entry and two parts."""
    folder = tmp_path_factory.mktemp("split")
    save_multi_file(folder, "multi.ninfer")
    return {path.name: path.read_bytes() for path in folder.iterdir()}
