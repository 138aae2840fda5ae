"""What every listener promises: HTTP, and the native protocol by TCP, by UDP and by its HTTP tunnel.

Each fact runs for each listener that it concerns. A packet of UDP has no connection, so it has no part in those of
time, size and number. What one protocol alone promises is in the files of that protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest

from doi_proxy.server.connections import BODY_DEADLINES, BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT, Reason
from doi_proxy.server.http_server import GRACE
from doi_proxy.server.plain_head import MAX_HEAD_BYTES
from handle_protocol.wire.message import Filters, Query, decode_response, encode_query
from tests.constants import PER_CLIENT
from tests.fake_upstream import EVERY_NAME
from tests.features.native_listener.listening import LOCAL, Listening, post
from tests.server.served import NAME, Served, finish, reset, served, statuses
from tests.world.service import CLIENT

pytestmark = pytest.mark.anyio

URL: Final = "https://www.example.org/a"
#: Longer than what the sockets of a connection hold.
LARGE: Final = 250_000
#: Seconds between two looks at the open connections, and the first one before.
SWEEPS: Final = 2.0


@dataclass(frozen=True)
class Row:
    """A listener: how its client asks, and what its codes mean. A code of None is silence."""

    name: str
    port: str
    write: Callable[[str], bytes]
    read: Callable[[bytes], list[int]]
    found: int
    missing: int
    failed: int
    limited: int
    #: Bytes that no request has, and the code that refuses them.
    malformed: bytes
    refused: list[int]
    #: The beginning of a request that is too large.
    large: bytes
    too_large: list[int]
    #: The start of a request that is never complete, and what it gets in the end.
    begun: bytes
    late: list[int]
    has_more_requests: bool = False

    async def ask(self, server: Served, name: str = NAME, client: str = LOCAL) -> list[int]:
        """The codes of the answers to a request of a client that leaves afterwards."""
        if self.name == "udp":
            return self.read(await Listening(server).exchange(self.write(name), by="udp", client=client) or b"")
        return self.read(await server.exchange(self.write(name), end=True, to=self.port, client=client))

    async def begin(self, server: Served, data: bytes, client: str = CLIENT) -> Any:
        """A connection on which these bytes were sent, and have arrived."""
        reader, writer = await server.connect(self.port, client)
        writer.write(data)
        await asyncio.sleep(0.001)
        return reader, writer


def _write_http(name: str) -> bytes:
    return f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def _write_message(name: str) -> bytes:
    return encode_query(Query(Filters(name.encode()), 7, 1_900_000_000))


def _write_tunnel(name: str) -> bytes:
    return post(_write_message(name)).replace(b"Connection: close\r\n", b"")


def _read_messages(answers: bytes) -> list[int]:
    return [decode_response(answers, digest_requested=False).code] if answers else []


def _read_tunnel(answers: bytes) -> list[int]:
    """The codes of messages, and the statuses of answers without one."""
    heads = answers.split(b"HTTP/1.1 ")[1:]
    return [
        _read_messages(head.partition(b"\r\n\r\n")[2])[0] if head.startswith(b"200") else int(head[:3])
        for head in heads
    ]


HTTP: Final = Row(
    "http",
    "http",
    _write_http,
    statuses,
    found=302,
    missing=404,
    failed=502,
    limited=429,
    malformed=b"GET / HTTP/1.1\r\n\r\n",
    refused=[400],
    large=b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * MAX_HEAD_BYTES,
    too_large=[431],
    begun=b"GET /",
    late=[408],
    has_more_requests=True,
)
TCP: Final = Row(
    "tcp",
    "native_listen",
    _write_message,
    _read_messages,
    found=1,
    missing=100,
    failed=2,
    limited=3,
    malformed=_write_message(NAME)[:20] + b"\xff" * 60,
    refused=[4],
    large=_write_message(NAME)[:16] + b"\x7f\xff\xff\xff",
    too_large=[4],
    begun=_write_message(NAME)[:21],
    late=[],
)
TUNNEL: Final = Row(
    "tunnel",
    "native_listen",
    _write_tunnel,
    _read_tunnel,
    found=1,
    missing=100,
    failed=2,
    limited=3,
    malformed=b"POST / HTTP/1.1\r\n\r\n",
    refused=[400],
    large=post(b"\x02" * 70_000),
    too_large=[413],
    begun=b"POST /",
    late=[408],
    has_more_requests=True,
)
UDP: Final = Row(
    "udp",
    "native_listen",
    _write_message,
    _read_messages,
    found=1,
    missing=100,
    failed=2,
    limited=3,
    malformed=b"\xff" * 60,
    refused=[],
    large=_write_message("10.1000/large"),
    too_large=[],
    begun=b"",
    late=[],
)
STREAMS: Final = (HTTP, TCP, TUNNEL)
ALL: Final = (*STREAMS, UDP)


def rows(*chosen: Row) -> pytest.MarkDecorator:
    """Run a fact for these listeners."""
    return pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in chosen])


def service(**settings: Any) -> Any:
    """A service with all listeners. It has NAME in its cache."""
    return served(native_listen="127.0.0.1:0", **settings)


def now() -> float:
    return asyncio.get_running_loop().time()


async def ends(server: Served, reason: Reason, number: int = 1) -> None:
    """Nothing but these connections has ended, and none is open."""
    await asyncio.sleep(SWEEPS)
    assert {why: count for why, count in server.connections.closed.items() if count} == {reason: number}
    assert len(server.connections) == 0


# Requests


@rows(*ALL)
async def test_an_answer_says_what_the_upstream_said_and_trouble_is_never_not_found(row: Row) -> None:
    async with service() as server:
        server.upstream.put("10.1000/new", url=URL)
        assert [await row.ask(server, "10.1000/new") for _ in range(2)] == [[row.found]] * 2
        assert server.upstream.queries("10.1000/new") == 1
        assert await row.ask(server, "10.1000/none") == [row.missing]
        server.upstream.fault(EVERY_NAME, "reset")
        assert await row.ask(server, "10.1000/cold") == [row.failed]
        server.clock.advance(90_000)
        assert await row.ask(server, "10.1000/new") == [row.found]


@rows(*STREAMS)
async def test_a_request_in_pieces_is_answered(row: Row) -> None:
    async with service() as server:
        pieces = [bytes([byte]) for byte in row.write(NAME)]
        assert row.read(await server.exchange(*pieces, end=True, to=row.port)) == [row.found]


@rows(*STREAMS)
async def test_what_is_not_a_request_is_refused_and_ends_the_connection(row: Row) -> None:
    async with service() as server:
        queries = server.upstream.queries()
        answers = await server.exchange(row.malformed + row.write(NAME), end=True, to=row.port)
        assert row.read(answers) == row.refused
        assert server.upstream.queries() == queries
        assert len(server.connections) == 0


@rows(*STREAMS)
async def test_a_request_that_is_too_large_is_refused_before_it_has_arrived(row: Row) -> None:
    async with service() as server:
        began = now()
        assert row.read(await server.exchange(row.large, to=row.port)) == row.too_large
        assert now() - began < 1


@pytest.mark.parametrize("packet", [UDP.malformed, UDP.large], ids=["malformed", "large"])
async def test_a_packet_that_is_not_a_request_or_whose_answer_is_too_large_is_dropped(packet: bytes) -> None:
    async with service() as server:
        await server.put("10.1000/large", LARGE)
        assert await Listening(server).exchange(packet, by="udp") is None
        metrics = (await server.get("/metrics")).text
        assert 'doi_proxy_native_listener_messages_total{result="dropped"} 1.0' in metrics


@rows(HTTP, TUNNEL)
async def test_requests_of_one_connection_are_answered_in_order(row: Row) -> None:
    async with service() as server:
        asked = [NAME, "10.1000/none", NAME]
        answers = await server.exchange(*map(row.write, asked), end=True, to=row.port)
        assert row.read(answers) == [row.found, row.missing, row.found]


async def test_a_connection_of_the_native_protocol_has_one_answer() -> None:
    async with service() as server:
        assert TCP.read(await server.exchange(TCP.write(NAME) * 3, to=TCP.port)) == [TCP.found]


@rows(*ALL)
async def test_a_client_over_its_rate_is_refused_by_every_listener(row: Row) -> None:
    async with service(client_rate=0.001, client_burst=2) as server:
        client = LOCAL if row is not HTTP else "198.51.100.7"
        assert [await row.ask(server, NAME, client) for _ in range(3)] == [[row.found]] * 2 + [[row.limited]]


async def test_packets_whose_sender_may_be_forged_spend_no_rate_of_the_network_that_they_name() -> None:
    async with service(client_rate=0.001, client_burst=2) as server:
        packets = [await UDP.ask(server, NAME, "198.51.100.7") for _ in range(4)]
        assert packets == [[UDP.found]] * 4
        assert await HTTP.ask(server, NAME, "198.51.100.9") == [HTTP.found]


# Time


@rows(*STREAMS)
async def test_the_head_of_a_request_has_a_deadline(row: Row) -> None:
    async with service() as server:
        began = now()
        assert row.read(await server.exchange(row.begun, to=row.port)) == row.late
        assert HEAD_TIMEOUT < now() - began <= HEAD_TIMEOUT + SWEEPS
        await ends(server, Reason.HEAD_TIMEOUT)


@rows(*STREAMS)
async def test_a_connection_without_a_request_ends_without_an_answer(row: Row) -> None:
    async with service() as server:
        assert await server.exchange(b"", to=row.port) == b""
        await ends(server, Reason.HEAD_TIMEOUT)


@rows(HTTP, TUNNEL)
async def test_a_further_head_has_the_deadline_too(row: Row) -> None:
    async with service() as server:
        answers = await server.exchange(row.write(NAME) + row.begun, to=row.port)
        assert row.read(answers) == [row.found, *row.late]
        await ends(server, Reason.HEAD_TIMEOUT)


@rows(HTTP, TUNNEL)
async def test_an_idle_connection_is_closed_without_an_answer(row: Row) -> None:
    async with service() as server:
        began = now()
        assert row.read(await server.exchange(row.write(NAME), to=row.port)) == [row.found]
        assert IDLE_TIMEOUT < now() - began <= IDLE_TIMEOUT + SWEEPS
        await ends(server, Reason.IDLE)


async def test_a_client_of_the_native_protocol_that_does_not_close_its_answered_connection_loses_it() -> None:
    async with service() as server:
        reader, writer = await TCP.begin(server, TCP.write(NAME))
        assert TCP.read(await reader.read()) == [TCP.found]
        await asyncio.sleep(WRITE_TIMEOUT - SWEEPS)
        assert len(server.connections) == 1
        await server.closed(Reason.FINISHED)
        assert len(server.connections) == 0
        writer.close()


def _begin_body(row: Row, path: bytes = b"/") -> bytes:
    head = row.write(NAME).partition(b"Content-Length")[0].partition(b" HTTP/1.1")[2] if row is TUNNEL else b""
    return b"POST " + path + b" HTTP/1.1" + (head or b"\r\nHost: x\r\n") + b"Content-Length: 60000\r\n\r\n"


@rows(HTTP, TUNNEL)
async def test_a_body_without_progress_has_a_deadline(row: Row) -> None:
    async with service() as server:
        began = now()
        assert statuses(await server.exchange(_begin_body(row) + b"a", to=row.port)) == [408]
        assert BODY_TIMEOUT < now() - began <= BODY_TIMEOUT + SWEEPS
        await ends(server, Reason.BODY_TIMEOUT)


@rows(HTTP, TUNNEL)
async def test_a_body_that_drips_has_a_deadline_in_all_and_delays_no_other_client(row: Row) -> None:
    async with service() as server:
        reader, writer = await row.begin(server, _begin_body(row))
        answer, began = asyncio.ensure_future(reader.read()), now()
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(BODY_TIMEOUT / 2)
            asked = now()
            assert await row.ask(server) == [row.found]
            assert now() == asked
        assert statuses(await answer) == [408]
        assert BODY_TIMEOUT * BODY_DEADLINES < now() - began < (BODY_TIMEOUT + SWEEPS) * (BODY_DEADLINES + 1)
        writer.close()
        await server.closed(Reason.BODY_TIMEOUT)


# Clients that do not read


@rows(*STREAMS)
async def test_a_client_that_does_not_read_is_disconnected_and_holds_nothing(row: Row) -> None:
    async with service() as server:
        await server.put("10.1000/large", LARGE)
        target = "api/handles/10.1000/large" if row is HTTP else "10.1000/large"
        reader, writer = await row.begin(server, row.write(target))
        began = now()
        await server.closed(Reason.WRITE_TIMEOUT)
        assert WRITE_TIMEOUT < now() - began <= WRITE_TIMEOUT + 2 * SWEEPS
        await ends(server, Reason.WRITE_TIMEOUT)
        assert len(await reader.read()) < LARGE
        writer.close()


@rows(*STREAMS)
async def test_a_client_that_reads_slowly_gets_its_whole_answer(row: Row) -> None:
    async with service() as server:
        await server.put("10.1000/large", LARGE)
        target = "api/handles/10.1000/large" if row is HTTP else "10.1000/large"
        reader, writer = await row.begin(server, row.write(target))
        read = bytearray()
        while len(read) < LARGE - 1_000:
            await asyncio.sleep(WRITE_TIMEOUT / 2)
            for _ in range(8):
                read += await reader.read(4_096)
        assert now() > 2 * WRITE_TIMEOUT
        writer.close()


# Numbers


@rows(*STREAMS)
async def test_a_client_has_a_number_of_connections_and_another_one_has_its_own(row: Row) -> None:
    async with service(**{PER_CLIENT: 4}) as server:
        silent = [await row.begin(server, b"") for _ in range(12)]
        await asyncio.sleep(SWEEPS)
        assert len(server.connections) == 4
        assert await row.ask(server, client="198.51.100.7") == [row.found]
        # A request takes the place of a connection of the same client that sends nothing.
        assert await row.ask(server, client=CLIENT) == [row.found]
        for _, writer in silent:
            writer.close()


@rows(*STREAMS)
async def test_at_the_most_connections_a_silent_one_gives_way_and_the_log_says_it_once(
    row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    async with service(max_connections=8) as server:
        silent = [await row.begin(server, b"", f"192.0.{number}.1") for number in range(8)]
        await asyncio.sleep(SWEEPS)
        assert [await row.ask(server, client=f"198.51.{number}.7") for number in range(20)] == [[row.found]] * 20
        assert server.connections.closed[Reason.CAP] >= 1
        assert len(server.connections) <= 8
        for _, writer in silent:
            writer.close()
    lines = [record.message for record in caplog.records if record.name == "doi_proxy.server.connections"]
    assert len([line for line in lines if "for which least has been done" in line]) == 1


@rows(*STREAMS)
async def test_while_every_connection_waits_for_an_answer_a_further_one_is_refused(row: Row) -> None:
    async with service(max_connections=4) as server:
        server.upstream.hold("10.1000/held")
        waiting = [
            await row.begin(server, row.write("10.1000/held"), f"{10 + number % 2}.0.0.1") for number in range(4)
        ]
        answer = await server.exchange(b"", to=row.port, client="198.51.100.7")
        assert statuses(answer) == ([] if row is TCP or row is TUNNEL else [503])
        assert server.connections.closed[Reason.REFUSED] == 1
        server.upstream.release("10.1000/held")
        for reader, writer in waiting:
            writer.write_eof()
            assert row.read(await finish(reader, writer)) == [row.missing]


async def test_requests_that_a_client_lets_wait_through_a_front_proxy_refuse_no_other_client() -> None:
    async with service(max_connections=8) as server:
        server.upstream.hold("10.1000/held")

        def write(name: str, client: str) -> bytes:
            return _write_http(name).replace(b"Host: x", f"Host: x\r\nX-Forwarded-For: {client}".encode())

        waiting = [await HTTP.begin(server, write("10.1000/held", "192.0.2.7"), "127.0.0.1") for _ in range(8)]
        for number in range(4):
            request = write(NAME, f"198.51.{16 * number}.7").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            assert statuses(await server.exchange(request, to=HTTP.port, client="127.0.0.1")) == [302]
        # The first ones gave way, with an answer: a front proxy takes none for a failure of the server.
        assert statuses(await waiting[0][0].read()) == [503]
        assert server.connections.closed[Reason.REFUSED] == 0
        server.upstream.release("10.1000/held")
        reader, writer = waiting[-1]
        writer.write_eof()
        assert statuses(await finish(reader, writer)) == [404]


# Clients that leave


@rows(*STREAMS)
async def test_at_the_most_connections_clients_that_have_closed_their_side_give_way_first(row: Row) -> None:
    async with service(max_connections=4) as server:
        server.upstream.hold("10.1000/held")
        # As a front proxy ends the connections of clients that have left: no further byte comes.
        waiting = [
            await row.begin(server, row.write("10.1000/held"), f"{10 + number % 2}.0.0.1") for number in range(4)
        ]
        for _, writer in waiting[:2]:
            writer.write_eof()
        await asyncio.sleep(0.01)
        assert [await row.ask(server, NAME, "198.51.100.7") for _ in range(2)] == [[row.found]] * 2
        assert server.connections.closed[Reason.REFUSED] == 0
        server.upstream.release("10.1000/held")
        for reader, writer in waiting[2:]:
            writer.write_eof()
            assert row.read(await finish(reader, writer)) == [row.missing]


@rows(*STREAMS)
@pytest.mark.parametrize("name", [NAME, "10.1000/none"], ids=["cached", "new"])
async def test_a_client_that_has_closed_its_side_gets_its_answer(row: Row, name: str) -> None:
    async with service() as server:
        answers = await server.exchange(row.write(name), end=True, to=row.port)
        assert row.read(answers) == [row.found if name == NAME else row.missing]
        await asyncio.sleep(0.001)
        assert len(server.connections) == 0


@rows(*STREAMS)
async def test_a_client_that_closes_its_side_within_a_request_gets_no_answer(row: Row) -> None:
    async with service() as server:
        assert await server.exchange(row.write(NAME)[:-2], end=True, to=row.port) == b""
        await ends(server, Reason.CLIENT)


@rows(*STREAMS)
async def test_a_client_that_goes_away_leaves_its_place_and_harms_nobody(row: Row) -> None:
    async with service() as server:
        server.upstream.put("10.1000/held", url=URL)
        server.upstream.hold("10.1000/held")
        _, writer = await row.begin(server, row.write("10.1000/held"))
        await server.upstream.arrived("10.1000/held")
        reset(writer)
        await ends(server, Reason.CLIENT)
        server.upstream.release("10.1000/held")
        assert await row.ask(server, "10.1000/held") == [row.found]


@rows(*STREAMS)
async def test_a_client_that_has_reset_its_connection_before_it_is_accepted_leaves_no_error(
    row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with service() as server:
        for request in (row.write(NAME), row.begun) * 3:
            _, writer = await server.connect(row.port, None)
            writer.write(request)
            reset(writer)
        await ends(server, Reason.CLIENT, 6)
        assert await row.ask(server) == [row.found]
    assert errors == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# The end


@rows(*STREAMS)
async def test_a_shutdown_answers_what_runs_closes_what_is_idle_and_refuses_the_rest(row: Row) -> None:
    async with service() as server:
        server.upstream.hold("10.1000/held")
        reader, writer = await row.begin(server, row.write("10.1000/held"))
        idle, _ = await row.begin(server, b"")
        await server.upstream.arrived("10.1000/held")
        ending = asyncio.ensure_future(server.drain())
        assert await idle.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await server.connect(row.port)
        assert not ending.done()
        server.upstream.release("10.1000/held")
        assert row.read(await finish(reader, writer)) == [row.missing]
        await ending
        assert now() < GRACE


@rows(*STREAMS)
async def test_a_shutdown_waits_for_an_answer_no_longer_than_the_grace(row: Row) -> None:
    async with service() as server:
        server.upstream.hold("10.1000/held")
        reader, writer = await row.begin(server, row.write("10.1000/held"))
        await server.upstream.arrived("10.1000/held")
        began = now()
        await server.drain()
        assert now() - began < GRACE + SWEEPS
        with suppress(ConnectionError):
            assert row.found not in row.read(await finish(reader, writer))
        server.upstream.release("10.1000/held")
