"""What the tests of stores share: a clock, and one real Valkey server for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clock import Clock
from tests.features.valkey.valkey_cluster import Cluster, running_cluster
from tests.features.valkey.valkey_server import start_valkey


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """The URL of a running Valkey server; one for the whole session."""
    server = start_valkey()
    yield f"valkey://127.0.0.1:{server.port}/0"
    server.stop()


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that no test breaks; one for the whole session."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()
