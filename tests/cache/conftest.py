"""What the tests of stores share: a clock, and real servers, each started once for the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from redis import Redis

from tests.cache.store_rows import Row, open_row
from tests.clock import Clock
from tests.features.valkey.valkey_cluster import Cluster, running_cluster
from tests.features.valkey.valkey_sentinel import SentinelSet, running_sentinels
from tests.features.valkey.valkey_server import running_valkey

Server = TypeVar("Server")
_VALKEY: Final = pytest.StashKey[Redis]()
_CLUSTER: Final = pytest.StashKey[Cluster]()
_SENTINELS: Final = pytest.StashKey[SentinelSet]()


def _start_once(
    config: pytest.Config, key: pytest.StashKey[Server], start: Callable[[], AbstractContextManager[Server]]
) -> Server:
    """The server of the session. Fixtures that several folders import are different ones to pytest."""
    if key not in config.stash:
        stack = ExitStack()
        config.stash[key] = stack.enter_context(start())
        config.add_cleanup(stack.close)
    return config.stash[key]


@pytest.fixture(scope="session")
def valkey_client(pytestconfig: pytest.Config) -> Any:
    """A client of the running Valkey server."""
    return _start_once(pytestconfig, _VALKEY, running_valkey)


@pytest.fixture(scope="session")
def valkey_url(pytestconfig: pytest.Config) -> str:
    """The URL of the running Valkey server."""
    client = _start_once(pytestconfig, _VALKEY, running_valkey)
    return f"valkey://127.0.0.1:{client.get_connection_kwargs()['port']}/0"


@pytest.fixture(scope="session")
def session_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster that no test breaks."""
    return _start_once(pytestconfig, _CLUSTER, lambda: running_cluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture(scope="session")
def session_sentinels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> SentinelSet:
    """Sentinels and their servers, which no test breaks."""
    return _start_once(pytestconfig, _SENTINELS, lambda: running_sentinels(tmp_path_factory.mktemp("sentinels")))


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
async def row(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[Row]:
    """The store that the parameter names, empty."""
    opened = open_row(request.param, clock, tmp_path, request)
    yield opened
    await opened.close()
