"""While no upstream answers, a record past its TTL is answered as quickly as a fresh one, with the same truth."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.core import RECHECK
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import BreakerOpen, UpstreamRefused, UpstreamUnreachable
from doi_proxy.server.protocol import ServerProtocol
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.server.test_prepared_answers import BROWSER, get
from tests.server.ways import URL, Server, Ways, lane_uses

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
