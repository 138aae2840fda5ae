"""Whatever a client sends, each request gets one answer, no other bytes do, and every connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.processes import Proxy
from tests.constants import BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT
from tests.hostile.clients import connect, exchange, flood, head, read, read_to_end, send, statuses, with_body
from tests.hostile.conftest import started

pytestmark = pytest.mark.process

_NAME: Final = "/10.1000/182"
_PIECE_PAUSE: Final = 0.01
#: Heads with two different lengths for one request (RFC 9112, sections 5.2, 6.1 and 6.3).
AMBIGUOUS: Final = (
    "Content-Length: 4\r\nContent-Length: 5",
    "Content-Length: 4, 5",
    "Content-Length: +4",
    "Content-Length: -1",
    "Content-Length: 0x4",
    "Content-Length: 4 4",
    "Content-Length:",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Content-Length: 4\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding:\x0bchunked",
    "X: a\r\n continued",
    "X : a",
)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy whose deadlines for clients are one second."""
    one = started(
        tmp_path_factory.mktemp("impatient"),
        upstream_url,
        store_url="memory:",
        **dict.fromkeys((HEAD_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, IDLE_TIMEOUT), 1),
    )
    try:
        yield one
    finally:
        one.process.kill()


def _resolves(proxy: Proxy) -> bool:
    return asyncio.run(proxy.ask(_NAME)).status == 302


@pytest.mark.parametrize("size", [1, 1_000, 65_535, 65_537, 100_000, 130_000])
def test_a_get_with_a_body_has_one_answer(proxy: Proxy, size: int) -> None:
    with connect(proxy.port) as connection:
        send(connection, head(_NAME, f"Content-Length: {size}"), _PIECE_PAUSE)
        send(connection, b"x" * size, _PIECE_PAUSE)
        assert len(statuses(read(connection))) == 1
    assert _resolves(proxy)


def test_bytes_of_a_body_are_not_a_request(proxy: Proxy) -> None:
    inner = head("/10.1000/smuggled")
    received = exchange(proxy.port, head(_NAME, f"Content-Length: {len(inner)}", method="GET") + inner)
    assert len(statuses(received)) == 1 and b"smuggled" not in received


@pytest.mark.parametrize("lines", AMBIGUOUS, ids=[repr(lines) for lines in AMBIGUOUS])
def test_an_ambiguous_length_is_refused_and_nothing_after_it_is_read(proxy: Proxy, lines: str) -> None:
    raw = head(_NAME, *lines.split("\r\n"), method="POST") + b"0\r\n\r\n" + head("/10.1000/smuggled")
    received = exchange(proxy.port, raw)
    assert statuses(received) == [400] and b"smuggled" not in received


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /\r\n\r\n",
    ],
)
def test_a_head_that_cannot_be_meant_is_400(proxy: Proxy, raw: bytes) -> None:
    assert statuses(exchange(proxy.port, raw)) == [400]


def test_http_1_0_needs_no_host(proxy: Proxy) -> None:
    assert statuses(exchange(proxy.port, f"GET {_NAME} HTTP/1.0\r\n\r\n".encode())) == [302]


def test_a_client_that_half_closes_gets_its_answer(proxy: Proxy) -> None:
    assert statuses(exchange(proxy.port, head("/10.1000/half-closed"), quiet=5.0, half_close=True)) == [302]


def test_requests_in_one_piece_are_answered_in_their_order(proxy: Proxy) -> None:
    targets = [f"/10.1000/in-order-{number}" for number in range(100)]
    received = exchange(proxy.port, b"".join(map(head, targets)), quiet=3.0)
    lines = [line for line in received.split(b"\r\n") if line.lower().startswith(b"location: ")]
    assert [line.rpartition(b"/")[2].decode() for line in lines] == [target.rpartition("/")[2] for target in targets]


@pytest.mark.parametrize(
    "unfinished",
    [
        b"",
        b"GET",
        head(_NAME)[:-2],
        head(_NAME, "Content-Length: 10", method="POST"),
        head(_NAME, "Content-Length: 10", method="POST") + b"half",
        head(_NAME, "Transfer-Encoding: chunked", method="POST") + b"5\r\nhal",
        head(_NAME),
    ],
    ids=["nothing", "a method", "half a head", "no body", "half a body", "half a chunk", "an idle connection"],
)
def test_what_is_never_finished_is_ended(impatient: Proxy, unfinished: bytes) -> None:
    with connect(impatient.port) as connection:
        send(connection, unfinished)
        assert read_to_end(connection) is not None


def test_a_client_that_reads_nothing_is_disconnected(impatient: Proxy) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(impatient.port)) for _ in range(5)]
        flood(connections, head("/") * 2_000, 10.0)
        assert _resolves(impatient)
        for connection in connections:
            connection.setblocking(True)
            assert read_to_end(connection) is not None


def test_more_connections_than_descriptors_leave_other_clients_alone(
    tmp_path_factory: pytest.TempPathFactory, upstream_url: str
) -> None:
    one = started(tmp_path_factory.mktemp("few"), upstream_url, max_connections=50)
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                with contextlib.suppress(OSError):
                    stack.enter_context(connect(one.port))
            assert all(_resolves(one) for _ in range(5))
    finally:
        one.process.kill()


def test_a_body_that_is_too_long_has_one_answer(proxy: Proxy) -> None:
    with connect(proxy.port) as connection:
        send(connection, with_body("/", 1_000_000, "Content-Type: application/x-www-form-urlencoded"), _PIECE_PAUSE)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        assert len(statuses(read(connection))) <= 1
    assert _resolves(proxy)
