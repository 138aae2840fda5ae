"""An answer from a registry record is the same from the store, from memory and prepared, and memory needs no store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.resolver.resolver import Resolver
from doi_proxy.server.prepared_answers import PreparedAnswers
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.proxies import forwarded_scope, read_client, trusted_hosts
from tests.clock import Clock
from tests.registry_records import FILE_DATE, write_registry
from tests.server.test_prepared_answers import get
from tests.server.ways import FullPathProtocol, Server, lane_uses

pytestmark = pytest.mark.anyio


PATH = "/10.5555/known"
TARGET = b"https://a.example/registry?a=%3C"
REQUESTS = [get(PATH), get(PATH, method="HEAD"), get("/10.5555/KNOWN"), get("/api/handles/10.5555/known")]
MODES: list[dict[str, Any]] = [{"mode": "sealed"}, {}]
ANSWER = PreparedAnswers.answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "store.sqlite3"
    write_registry(path, Clock(), {"10.5555/known": TARGET.decode()})
    yield f"sqlite:///{path}"


def forget_recent(server: Server) -> None:
    """Let the store forget what it has read of the records."""
    server.application.prepared._resolver.cache.registry.forget_recent()  # type: ignore[union-attr]


class StoreOnly(FullPathProtocol):
    """The way of an answer that memory does not have."""

    def data_received(self, data: bytes) -> None:
        memory_misses = patch.object(Resolver, "resolve_now", lambda *_: None)
        memory_misses.start()
        try:
            super().data_received(data)
        finally:
            memory_misses.stop()


@pytest.mark.parametrize("mode", MODES, ids=["sealed", "the upstream fails"])
async def test_every_way_gives_the_same_bytes(store: str, mode: dict[str, Any]) -> None:
    clock = Clock()
    express, full, reading = (
        Server(clock, kind, store_url=store, **mode) for kind in (ServerProtocol, FullPathProtocol, StoreOnly)
    )
    for seconds in (0, 0.5, 1, 3, 40):
        clock.advance(seconds)
        for request in REQUESTS:
            for _ in range(3):
                expected = await reading.answers(request)
                assert b"detail=registry" in expected[0]
                assert await full.answers(request) == expected
                assert await express.answers(request) == expected


async def test_a_sealed_server_answers_the_first_request_for_a_name_without_a_task(store: str) -> None:
    server = Server(Clock(), ServerProtocol, store_url=store, mode="sealed")
    uses = lane_uses(server.application)
    first, _ = await server.answers(get(PATH))
    assert b"\r\nlocation: " + TARGET + b"\r\n" in first
    assert uses == [("GET", 302)]


async def test_a_sealed_server_answers_from_prepared_bytes_without_its_store(store: str) -> None:
    server = Server(Clock(), ServerProtocol, store_url=store, mode="sealed")
    first, _ = await server.answers(get(PATH))
    assert b"\r\nlocation: " + TARGET + b"\r\n" in first
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file, file:
        file.execute("DELETE FROM registry_blocks")
    server.clock.advance(3_600)
    prepared: list[bytes | None] = []

    def answer(*given: Any) -> bytes | None:
        prepared.append(ANSWER(*given))
        return prepared[-1]

    with patch.object(PreparedAnswers, "answer", answer):
        second, _ = await server.answers(get(PATH))
    assert prepared == [second]
    assert b"\r\nlocation: " + TARGET + b"\r\n" in second


async def test_a_record_that_memory_has_evicted_is_answered_from_its_store_by_the_prepared_reply(store: str) -> None:
    server = Server(Clock(), ServerProtocol, store_url=store, mode="sealed")
    first, _ = await server.answers(get(PATH))
    uses = lane_uses(server.application)
    forget_recent(server)
    second, _ = await server.answers(get(PATH))
    assert second == first
    assert uses == [("GET", 302)]


async def test_a_prepared_reply_ends_with_its_record_in_the_same_second_and_not_before(store: str) -> None:
    server = Server(Clock(), ServerProtocol, store_url=store, mode="sealed")
    resolver = server.application.prepared._resolver  # type: ignore[union-attr]
    cache = resolver.cache
    await cache.forget_announced()
    await server.answers(get(PATH))
    with patch.object(Resolver, "resolve_now", side_effect=AssertionError):
        again, _ = await server.answers(get(PATH))
    assert b"\r\nlocation: " + TARGET + b"\r\n" in again
    path = Path(store.removeprefix("sqlite:///"))
    write_registry(path, server.clock, {"10.5555/known": "https://b.example/"}, date=FILE_DATE + 1)
    await cache.forget_announced()
    later, _ = await server.answers(get(PATH))
    assert b"\r\nlocation: https://b.example/\r\n" in later


async def test_a_request_whose_prepared_reply_has_died_is_counted_once(store: str) -> None:
    server = Server(Clock(), ServerProtocol, store_url=store, mode="sealed", client_rate=0.001, client_burst=3)
    await server.answers(get(PATH))
    forget_recent(server)
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file, file:
        file.execute("DELETE FROM registry_blocks")
    statuses = [(await server.answers(get(PATH)))[0].split(b" ")[1] for _ in range(3)]
    assert statuses == [b"504", b"504", b"429"]


# --- The client that a trusted front proxy names is the one that uvicorn's middleware finds --------------------------


async def application(scope: object, receive: object, send: object) -> None: ...


@pytest.mark.parametrize("trusted", ["127.0.0.1", "127.0.0.1,10.0.0.0/8", "*"])
@pytest.mark.parametrize(
    "value",
    ["198.51.100.7", "10.1.2.3", "127.0.0.1", " 198.51.100.7 ", "198.51.100.7, 10.1.2.3", "203.0.113.1,198.51.100.7",
     "198.51.100.7:8080", "2001:db8::1", "[2001:db8::1]:443", "1", "1.2", ".", "198.51.100.7 10.1.2.3", "", "unknown"],
)  # fmt: skip
def test_every_form_is_read_as_the_middleware_reads_it(trusted: str, value: str) -> None:
    app = ProxyHeadersMiddleware(application, trusted)
    app.trusted_hosts = trusted_hosts(tuple(trusted.split(",")))
    expected = app.trusted_hosts.get_trusted_client_address(value)
    assert read_client(app.trusted_hosts, value.encode())[0] == expected[0]


def test_an_untrusted_peer_names_nobody() -> None:
    app = ProxyHeadersMiddleware(application, "127.0.0.1")
    app.trusted_hosts = trusted_hosts(("127.0.0.1",))
    scope = {"client": ("203.0.113.5", 1), "headers": [(b"x-forwarded-for", b"198.51.100.7")]}
    assert forwarded_scope(app, scope)["client"] == ("203.0.113.5", 1)


@pytest.mark.parametrize("peer", ["127.0.0.1", "203.0.113.5"])
@pytest.mark.parametrize("protos", [[], ["https"], ["http"], [" https "], ["http", "https"], ["javascript"]])
async def test_the_scheme_is_the_one_that_the_middleware_finds(protos: list[str], peer: str) -> None:
    found: list[Any] = []

    async def keep(scope: Any, receive: object, send: object) -> None:
        found.append(scope["scheme"])

    app: Any = ProxyHeadersMiddleware(keep, "127.0.0.1")
    headers = [(b"x-forwarded-proto", proto.encode()) for proto in protos]
    scope: dict[str, Any] = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    read = forwarded_scope(app, dict(scope))
    await app(scope, None, None)
    assert [read["scheme"]] == found
