"""The application without a socket: most of what dialects do is in their words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from builders.fake_service import FakeService
from ninfer_runtime.server.app import create_app


@pytest.fixture
def http(fake: FakeService) -> Iterator[TestClient]:
    with TestClient(create_app(fake)) as client:
        yield client
