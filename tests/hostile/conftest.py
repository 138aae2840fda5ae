"""A proxy and a hostile upstream as processes, for clients on real sockets."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import Process, Proxy

#: The token of the administrator of a proxy whose documented requests are sent.
ADMIN_TOKEN: Final = "a-token-of-thirty-two-characters"


@pytest.fixture(scope="session")
def upstream_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running hostile upstream."""
    with hostile_upstream(tmp_path_factory.mktemp("hostile")) as url:
        yield url


@contextmanager
def hostile_upstream(folder: Path) -> Iterator[str]:
    """Start a hostile upstream, whose log is in a folder. Yields its URL."""
    process = Process([sys.executable, "-m", "tests.hostile.upstream"], folder / "upstream.log")
    try:
        yield f"http://127.0.0.1:{process.read_port()}"
    finally:
        process.kill()


def started(folder: Path, upstream_url: str, *, store_url: str = "memory:", **settings: object) -> Proxy:
    """A running proxy. The budget cannot interfere, nor can a store unless one is named."""
    given = {"upstream_rate": 100_000, "upstream_burst": 100_000, **settings}
    proxy = Proxy(folder, upstream_url, store_url, **given)
    try:
        asyncio.run(proxy.ready())
    except BaseException:
        proxy.process.kill()
        raise
    return proxy
