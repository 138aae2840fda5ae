"""While no upstream answers, a record past its TTL is answered as quickly as a fresh one, with the same truth."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.core import RECHECK, open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import BreakerOpen, UpstreamRefused, UpstreamUnreachable
from doi_proxy.server.protocol import ServerProtocol
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.server.test_prepared_answers import BROWSER, get
from tests.server.ways import RECORDS, URL, FullPathProtocol, Server, Ways, Wire, lane_uses

pytestmark = pytest.mark.anyio


TTL = 86_400.0
MODES: list[dict[str, Any]] = [{}, {"mode": "sealed"}]
STATES = ["the upstream is down", "sealed"]
REQUESTS = [
    get("/10.1000/182"),
    get("/10.1000/182", method="HEAD"),
    get("/10.1000/alias"),
    get("/10.1000/mail", *BROWSER),
    get("/10.1000/script", *BROWSER),
    get("/10.1000/none", *BROWSER),
    get("/10.1000/182?noredirect", *BROWSER),
    get("/10.1000/182?urlappend=%3Fx"),
    get("/api/handles/10.1000/182"),
    get("/api/handles/10.1000/182?type=URL"),
    get("/10.1000/new", *BROWSER),
    get("/10.1000/new", "Accept: application/json"),
    get("/10.1000/new", "Accept-Language: fr", method="HEAD"),
    get("/10.1000/new?auth"),
    get("/api/handles/10.1000/new"),
]
#: The last part of its lifetime, in which a record is due for a refresh; its end; and a day past it.
WAITS = (TTL * 0.95, TTL - 5, TTL, 2 * TTL)


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"mode": "sealed"}, WAITS),
        ({"failure": UpstreamUnreachable()}, WAITS[1:]),
        # The times in seconds are not whole. The first failure is about one name.
        ({"failure": UpstreamRefused(upstream_status=403, retry_after=3.4)}, WAITS[-1:]),
        ({"failure": BreakerOpen(retry_after=2.7)}, WAITS[-1:]),
    ],
    ids=["sealed", "unreachable", "refused", "breaker"],
)
async def test_every_way_gives_the_same_bytes_and_lines(options: dict[str, Any], waits: tuple[float, ...]) -> None:
    ways = Ways(privacy=0, **options)
    first = [([request], 0.0) for request in REQUESTS]
    later = [([request], step) for step in (0.3, 0.2, 0.8, 1.0, RECHECK, 0.1) for request in REQUESTS]
    for wait in waits:
        await ways.compare([*first, ([get("/")], wait), *later])
    await ways.close()


@pytest.mark.parametrize("mode", MODES, ids=STATES)
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/10.1000/182"), 302),
        (get("/api/handles/10.1000/182"), 200),
        (get("/10.1000/182?noredirect", *BROWSER), 200),
        (get("/10.1000/script", *BROWSER), 200),
    ],
    ids=["redirect", "REST", "record page", "page in place of a redirect"],
)
async def test_a_stale_answer_is_prepared_as_a_fresh_one_is(mode: dict[str, Any], request_: bytes, status: int) -> None:
    server = Server(Clock(), ServerProtocol, **mode)
    server.clock.advance(2 * TTL)
    for _ in range(3):
        stale, _ = await server.answers(request_)
    uses = lane_uses(server.application)
    for wait in (0.0, 0.4, 1.0, RECHECK - 2):
        server.clock.advance(wait)
        assert b"; hit; ttl=-" in (await server.answers(request_))[0]
    assert uses == [("GET", status)] * 4
    reason = b"sealed" if mode else b"upstream-unreachable"
    assert b"; detail=" + reason + b"\r\n" in stale
    assert b"\r\ncache-control: public, max-age=30\r\n" in stale


@pytest.mark.parametrize("mode", MODES, ids=STATES)
async def test_a_stale_record_is_read_from_the_store_once_for_a_while(tmp_path: Path, mode: dict[str, Any]) -> None:
    path = tmp_path / "store.sqlite3"
    server = Server(Clock(), ServerProtocol, store_url=f"sqlite:///{path}", **mode)
    cache, now = server.cache, server.clock()
    await server.memory.close()
    await cache.put(Entry("10.1000/182", Answer(ResponseCode.SUCCESS, b"[" + URL + b"]"), now, now + TTL, now + 10**6))
    await cache.flush()
    await server.memory.close()
    server.clock.advance(2 * TTL)
    first, _ = await server.answers(get("/10.1000/182"))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM entries")
    server.clock.advance(RECHECK - 1)
    for path_ in ("/10.1000/182", "/api/handles/10.1000/182", "/10.1000/182?type=URL"):
        assert b"; hit; ttl=-" in (await server.answers(get(path_)))[0]
    assert b" 302 Found\r\n" in first


async def test_a_stale_answer_ends_within_the_second_with_its_record() -> None:
    server = Server(Clock(), ServerProtocol)
    server.clock.advance(2 * TTL)
    for _ in range(2):
        assert b"; hit; ttl=-" in (await server.answers(get("/10.1000/182")))[0]
    now = server.clock()
    moved = URL.replace(b"hb.html", b"moved.html")
    server.memory.keep(
        Entry("10.1000/182", Answer(ResponseCode.SUCCESS, b"[" + moved + b"]"), now, now + TTL, now + TTL)
    )
    assert b"/moved.html\r\n" in (await server.answers(get("/10.1000/182")))[0]
    server.memory.drop("10.1000/182")
    assert b" 502 Bad Gateway\r\n" in (await server.answers(get("/10.1000/182")))[0]


@pytest.mark.parametrize("mode", MODES, ids=STATES)
@pytest.mark.parametrize(
    "request_",
    [get("/10.1000/new", *BROWSER), get("/api/handles/10.1000/new")],
    ids=["page", "REST"],
)
async def test_a_failure_is_prepared_for_the_rest_of_its_second(mode: dict[str, Any], request_: bytes) -> None:
    server = Server(Clock(), ServerProtocol, **mode)
    for _ in range(3):
        first, _ = await server.answers(request_)
    uses = lane_uses(server.application)
    server.clock.advance(0.5)
    assert (await server.answers(request_))[0] == first
    assert len(uses) == 1
    server.clock.advance(0.5)
    assert (await server.answers(request_))[0] == first
    assert len(uses) == 1


async def test_a_failure_ends_within_its_second_with_an_answer() -> None:
    server = Server(Clock(), ServerProtocol)
    for _ in range(3):
        assert b" 502 Bad Gateway\r\n" in (await server.answers(get("/10.1000/new")))[0]
    now = server.clock()
    record = Answer(ResponseCode.SUCCESS, b"[" + URL + b"]")
    server.memory.keep(Entry("10.1000/NEW", record, now, now + TTL, now + TTL))
    assert b" 302 Found\r\n" in (await server.answers(get("/10.1000/new")))[0]


async def test_a_stale_answer_is_not_used_after_the_time_at_which_the_upstream_is_queried_again() -> None:
    server = Server(Clock(), ServerProtocol)
    server.clock.advance(2 * TTL)
    for _ in range(3):
        await server.answers(get("/10.1000/182"))
    uses = lane_uses(server.application)
    server.clock.advance(RECHECK)
    await server.answers(get("/10.1000/182"))
    assert uses == []


# --- An answer that only the store has takes no task, and has the same bytes as one from memory ----------------------


URL_PATHS = ["/10.1000/182", "/10.1000/%C3%84", "/api/handles/10.1000/182", "/10.1000/182?type=URL"]
OTHER_PATHS = ["/10.1000/alias", "/10.1000/links", "/10.1000/loc", "/10.1000/mail", "/10.1000/none"]
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
