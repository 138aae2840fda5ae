"""An answer that only the store has takes no task, and has the same bytes as one from memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.server.protocol import ServerProtocol
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.server.test_prepared_answers import get
from tests.server.ways import RECORDS, FullPathProtocol, Server, Wire

pytestmark = pytest.mark.anyio

URL_PATHS = ["/10.1000/182", "/10.1000/%C3%84", "/api/handles/10.1000/182", "/10.1000/182?type=URL"]
OTHER_PATHS = ["/10.1000/alias", "/10.1000/links", "/10.1000/loc", "/10.1000/mail", "/10.1000/none"]
TTL = 86_400.0
#: Values that a row notes the target of, and values that only look like it, each under a name of its own.
ODD_RECORDS = {
    f"10.1000/ODD{number}": b",".join(
        b'{"index":%d,"type":"%b","data":"%b"}' % (index, kind, data) for index, (kind, data) in enumerate(values, 1)
    )
    for number, values in enumerate(
        [
            [(b"URL", b"https://a.example/1")],
            [(b"URL", b"https://a.example/?a=1&b=%C3%A4#'f'")],
            [(b"URL", b"https://a.example/a/../b")],
            [(b"URL", b"https://a.example/" + b"x" * 5_000)],
            [(b"URL", b"https://a.example/1"), (b"URL", b"https://a.example/2")],
            [(b"URL.x", b"https://a.example/x"), (b"DESC", b"https://a.example/d"), (b"url", b"https://a.example/u")],
            [(b"URL", b"  https://a.example/1 ")],
            [(b"URL", b"https:\\/\\/a.example\\/1")],
            [(b"URL", b"https://a.example/\\r\\nset-cookie: a=b")],
            [(b"URL", b'https://a.example/<a>\\"')],
            [(b"URL", b"HTTPS://A.example/1")],
            [(b"URL", b"ftp://a.example/1")],
            [(b"URL", b"https://a.example/1"), (b"HS_ALIAS", b"10.1000/182")],
            [(b"URL", b"https://a.example/1"), (b"10320/headers", b"<headers/>")],
        ]
    )
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[str]:
    """A store with the records."""
    url, clock = f"sqlite:///{tmp_path / 'store.sqlite3'}", Clock()
    cache = open_cache(Settings(store_url=url), clock)
    now = clock()
    for key, value in (RECORDS | ODD_RECORDS).items():
        answer = Answer(ResponseCode.SUCCESS, b"[" + value + b"]")
        await cache.put(Entry(key, answer, now, now + TTL, now + 10**6))
    await cache.close()
    yield url


async def start(kind: type[ServerProtocol], store: str, memory_bytes: int, **options: Any) -> Server:
    server = Server(Clock(), kind, store_url=store, cache_memory_bytes=memory_bytes, **options)
    await server.memory.close()
    return server


@pytest.mark.parametrize("memory_bytes", [0, 10_000_000])
async def test_every_way_gives_the_same_bytes(store: str, memory_bytes: int) -> None:
    remembering = Server(Clock(), ServerProtocol)
    express, full = [await start(kind, store, memory_bytes) for kind in (ServerProtocol, FullPathProtocol)]
    for path in URL_PATHS + OTHER_PATHS:
        for method in ("GET", "HEAD"):
            expected = await remembering.answers(get(path, method=method))
            for _ in range(2):
                assert await express.answers(get(path, method=method)) == expected
                assert await full.answers(get(path, method=method)) == expected


async def test_a_target_that_a_row_notes_changes_no_byte(store: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    service = '[[service]]\nname = "a"\nlabel = "A"\nkind = "ezproxy"\nurl = "https://e.example/login"\n'
    rules.write_text(service + '[[rule]]\nservice = "a"\nhosts = ["a.example"]\n', encoding="utf-8")
    detoured = 0
    without: dict[str, Any] = {}
    for options in (without, {"library_rules": rules}):
        remembering = Server(Clock(), FullPathProtocol, **options)
        now = remembering.clock()
        for key, value in ODD_RECORDS.items():
            answer = Answer(ResponseCode.SUCCESS, b"[" + value + b"]")
            remembering.memory.keep(Entry(key, answer, now, now + TTL, now + 10**6))
        ways = [await start(kind, store, 0, **options) for kind in (ServerProtocol, FullPathProtocol)]
        for key in ODD_RECORDS:
            for headers in (("Accept: */*",), ("Accept: text/html",), ("Accept: application/x-bibtex",)):
                expected = await remembering.answers(get(f"/{key}", *headers))
                assert b"set-cookie: a" not in expected[0].partition(b"\r\n\r\n")[0]
                detoured += b"location: https://e.example/login" in expected[0]
                for server in (*ways, *ways):
                    assert await server.answers(get(f"/{key}", *headers)) == expected, key
    assert detoured


@pytest.mark.parametrize("path", URL_PATHS)
async def test_it_takes_no_task(store: str, path: str) -> None:
    server = await start(ServerProtocol, store, 0)
    protocol, wire = ServerProtocol(server._config, server.state, {}), Wire()
    protocol.connection_made(wire)
    protocol.data_received(get(path))
    assert wire.written.startswith((b"HTTP/1.1 302 ", b"HTTP/1.1 200 "))
    assert not server.state.tasks
    protocol.connection_lost(None)
