"""An answer that only the store has takes no task, and has the same bytes as one from memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.assembly.settings import Settings
from app.assembly.stores import open_cache
from app.cache.entry import Entry
from app.handle.answer import Answer, ResponseCode
from app.server.protocol import ExpressProtocol
from tests.clock import Clock
from tests.server.test_prepared_answers import get
from tests.server.ways import RECORDS, FullPathProtocol, Server, Wire

pytestmark = pytest.mark.anyio

URL_PATHS = ["/10.1000/182", "/10.1000/%C3%84", "/api/handles/10.1000/182", "/10.1000/182?type=URL"]
OTHER_PATHS = ["/10.1000/alias", "/10.1000/links", "/10.1000/loc", "/10.1000/mail", "/10.1000/none"]
TTL = 86_400.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[str]:
    """A store with the records."""
    url, clock = f"sqlite:///{tmp_path / 'store.sqlite3'}", Clock()
    cache = open_cache(Settings(store_url=url), clock)
    now = clock()
    for key, value in RECORDS.items():
        answer = Answer(ResponseCode.SUCCESS, b"[" + value + b"]")
        await cache.put(Entry(key, answer, now, now + TTL, now + 10**6))
    await cache.close()
    yield url


async def start(kind: type[ExpressProtocol], store: str, memory_bytes: int) -> Server:
    server = Server(Clock(), kind, store_url=store, cache_memory_bytes=memory_bytes)
    await server.memory.close()
    return server


@pytest.mark.parametrize("memory_bytes", [0, 10_000_000])
async def test_every_way_gives_the_same_bytes(store: str, memory_bytes: int) -> None:
    remembering = Server(Clock(), ExpressProtocol)
    express, full = [await start(kind, store, memory_bytes) for kind in (ExpressProtocol, FullPathProtocol)]
    for path in URL_PATHS + OTHER_PATHS:
        for method in ("GET", "HEAD"):
            expected = await remembering.answers(get(path, method=method))
            for _ in range(2):
                assert await express.answers(get(path, method=method)) == expected
                assert await full.answers(get(path, method=method)) == expected


@pytest.mark.parametrize("path", URL_PATHS)
async def test_it_takes_no_task(store: str, path: str) -> None:
    server = await start(ExpressProtocol, store, 0)
    protocol, wire = ExpressProtocol(server._config, server.state, {}), Wire()
    protocol.connection_made(wire)
    protocol.data_received(get(path))
    assert wire.written.startswith((b"HTTP/1.1 302 ", b"HTTP/1.1 200 "))
    assert not server.state.tasks
    protocol.connection_lost(None)
