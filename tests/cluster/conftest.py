"""Processes that a test starts. They are ended even if the test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import Proxy, UpstreamProcess
from tests.features.valkey.valkey_server import start_valkey

StartUpstream = Callable[..., UpstreamProcess]
StartProxy = Callable[..., Proxy]


@pytest.fixture
def valkey() -> Iterator[Any]:
    """A Valkey server; `terminate()` is kill -9, `start()` brings it back on the same port, empty."""
    server = start_valkey()
    yield server
    server.terminate()


@pytest.fixture
def start_upstream(tmp_path: Path) -> Iterator[StartUpstream]:
    """Starts upstream processes; see UpstreamProcess."""
    started: list[UpstreamProcess] = []

    def start(records: dict[str, str], **more: Any) -> UpstreamProcess:
        started.append(UpstreamProcess(tmp_path, records, **more))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()


@pytest.fixture
def start_proxy(tmp_path: Path) -> Iterator[StartProxy]:
    """Starts proxies with the upstream `upstream_url` that share `store_url`. Other keywords are settings."""
    started: list[Proxy] = []

    def start(upstream_url: str, store_url: str, **settings: object) -> Proxy:
        started.append(Proxy(tmp_path, upstream_url, store_url, **{"upstream_rate": 100_000, **settings}))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()


@pytest.fixture
def store_file(tmp_path: Path) -> str:
    """The URL of a SQLite store that does not exist yet."""
    return f"sqlite:///{tmp_path}/store.sqlite3"
