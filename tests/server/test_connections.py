"""The open connections of a process by themselves: deadlines by phase, caps, and which connection gives way.

test_deadlines.py has the same on real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import pytest

from doi_proxy.server.connections import (
    BODY_DEADLINES,
    BODY_RATE,
    BODY_TIMEOUT,
    SLICE,
    VISITS,
    ConnectionLimits,
    Connections,
    Phase,
    Reason,
)
from doi_proxy.server.proxies import UNIX_PEER, trusted_addresses
from doi_proxy.web.request_path import client_of
from tests.constants import MAX_OPEN, WRITE_TIMEOUT
from tests.server.served import Served, finish

pytestmark = pytest.mark.anyio


class Still:
    """A connection that stays in one phase."""

    def __init__(self, phase: Phase) -> None:
        self.since = self.body_since = 0.0
        self.ended: list[Reason] = []
        self._phase = phase

    def phase(self, now: float) -> tuple[Phase, float]:
        return self._phase, self.since

    def expire(self, reason: Reason) -> None:
        self.ended.append(reason)


def _connections(total: int) -> Connections:
    return Connections(
        ConnectionLimits(
            head_timeout=15,
            body_timeout=30,
            write_timeout=31,
            idle_timeout=75,
            total=total,
            per_client=10,
            client_of=client_of,
            is_trusted=lambda address: False,
        )
    )


@pytest.mark.parametrize(
    ("phase", "seconds", "reason"),
    [
        (Phase.NEW, 15, Reason.HEAD_TIMEOUT),
        (Phase.HEAD, 15, Reason.HEAD_TIMEOUT),
        (Phase.BODY, 30, Reason.BODY_TIMEOUT),
        (Phase.WRITE, 31, Reason.WRITE_TIMEOUT),
        (Phase.IDLE, 75, Reason.IDLE),
        (Phase.CLOSING, 31, Reason.FINISHED),
    ],
)
async def test_each_phase_has_its_deadline_and_none_ends_early(phase: Phase, seconds: float, reason: Reason) -> None:
    connections = _connections(total=10)
    connection = Still(phase)
    assert connections.admit(connection, "192.0.2.7", asyncio.get_running_loop())
    began = connections.now
    connections.sweep(began + seconds + 0.9)
    assert connection.ended == []
    connections.sweep(began + seconds + 1.1)
    assert connection.ended == [reason]


async def test_one_turn_of_the_loop_checks_one_slice_and_a_sweep_checks_all_once_but_those_that_ended() -> None:
    looked_at: list[Still] = []

    class Watched(Still):
        def phase(self, now: float) -> tuple[Phase, float]:
            looked_at.append(self)
            return super().phase(now)

    connections, loop = _connections(total=10 * SLICE), asyncio.get_running_loop()
    watched = [Watched(Phase.IDLE) for _ in range(5 * SLICE + 1)]
    for number, connection in enumerate(watched):
        assert connections.admit(connection, f"10.{number // 250}.{number % 250}.1", loop)
    looked_at.clear()
    timer: Any = connections._timer
    timer.cancel()
    began = connections.now
    connections.sweep(began + 80)
    connections.remove(watched[0], Reason.CLIENT)
    for slices in range(1, 6):
        assert len(looked_at) == slices * SLICE
        connections.sweep(began + 80 + slices)
    assert set(looked_at) == set(watched[1:])
    assert all(connection.ended == [Reason.IDLE] for connection in looked_at)
    assert (len(looked_at), connections.now) == (5 * SLICE, began + 85)


async def test_the_slices_of_a_sweep_follow_each_other_without_a_pause() -> None:
    connections, loop = _connections(total=10 * SLICE), asyncio.get_running_loop()
    idle = [Still(Phase.IDLE) for _ in range(5 * SLICE)]
    for number, connection in enumerate(idle):
        assert connections.admit(connection, f"10.{number // 250}.{number % 250}.1", loop)
        connection.since -= 80
    connections._tick(loop)
    for slices in range(1, 6):
        assert sum(bool(connection.ended) for connection in idle) == slices * SLICE
        await asyncio.sleep(0)


async def test_closing_and_idle_connections_give_way_first_then_those_without_progress_and_an_answer_never() -> None:
    connections = _connections(total=5)
    order = [Still(phase) for phase in (Phase.ANSWER, Phase.WRITE, Phase.BODY, Phase.IDLE, Phase.CLOSING)]
    loop = asyncio.get_running_loop()
    for number, connection in enumerate(order):
        assert connections.admit(connection, f"10.{number}.0.1", loop)
        connections.sweep(connections.now + 1.0)
    gone = []
    for number in range(5):
        connections.admit(Still(Phase.ANSWER), f"198.51.{number}.1", loop)
        gone = [connection for connection in order if connection.ended]
        assert len(gone) == min(number + 1, 4)
        if number < 2:
            assert gone == order[-1 - number :]
    assert not order[0].ended


async def test_a_silent_connection_gives_way_before_idle_ones_and_a_new_one_after_them() -> None:
    connections = _connections(total=3)
    loop = asyncio.get_running_loop()
    idle, silent, new = Still(Phase.IDLE), Still(Phase.NEW), Still(Phase.NEW)
    for number, connection in enumerate((idle, silent, new)):
        assert connections.admit(connection, f"192.0.{number}.1", loop)
        connections.sweep(connections.now + (0.0 if connection is idle else 1.5))
    for expected in (silent, idle, new):
        assert not expected.ended
        connections.admit(Still(Phase.ANSWER), "198.51.100.1", loop)
        assert expected.ended == [Reason.CAP]


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.WRITE])
async def test_a_connection_with_unnoticed_progress_gives_way_after_one_without(phase: Phase) -> None:
    connections = _connections(total=2)
    loop = asyncio.get_running_loop()
    active, still = Still(phase), Still(phase)
    assert connections.admit(active, "192.0.2.1", loop) and connections.admit(still, "198.51.100.1", loop)
    connections.sweep(connections.now + 10)
    active.since = connections.now - 5
    assert connections.admit(Still(Phase.ANSWER), "203.0.113.1", loop)
    assert (active.ended, still.ended) == ([], [Reason.CAP])


async def test_a_burst_of_new_connections_closes_about_half_of_the_idle_ones() -> None:
    connections = _connections(total=80)
    loop = asyncio.get_running_loop()
    idle = [Still(Phase.IDLE) for _ in range(80)]
    for number, connection in enumerate(idle):
        connections.admit(connection, f"192.0.{number}.1", loop)
    connections.sweep(connections.now + 1.0)
    assert all(connections.admit(Still(Phase.NEW), f"198.51.{number % 250}.1", loop) for number in range(2_000))
    assert sum(not connection.ended for connection in idle) == 39


async def test_in_a_burst_a_client_with_few_connections_keeps_the_one_that_has_sent_no_head_yet() -> None:
    connections = _connections(total=80)
    loop = asyncio.get_running_loop()
    slow = Still(Phase.NEW)
    assert connections.admit(slow, "198.51.100.1", loop)
    assert all(connections.admit(Still(Phase.NEW), f"10.0.{number % 40}.1", loop) for number in range(400))
    assert slow.ended == []
    # Of as many clients as there are places, none has more than its share.
    assert all(connections.admit(Still(Phase.NEW), f"10.{number}.0.1", loop) for number in range(160))
    assert slow.ended == [Reason.CAP]


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.IDLE, Phase.HEAD, Phase.CLOSING])
async def test_connections_that_come_and_go_at_the_cap_keep_no_other_client_out(phase: Phase) -> None:
    connections = _connections(total=80)
    loop = asyncio.get_running_loop()
    # No sweep passes meanwhile.
    for _ in range(10):
        crowd = [Still(phase) for _ in range(80)]
        for number, connection in enumerate(crowd):
            assert connections.admit(connection, f"10.{number}.0.1", loop)
        other = Still(Phase.ANSWER)
        assert connections.admit(other, "198.51.100.1", loop)
        for connection in [*crowd, other]:
            connections.remove(connection, Reason.CLIENT)


async def test_an_arrival_visits_some_connections_and_the_next_one_those_after_them() -> None:
    visits = list[Still]()

    class Watched(Still):
        def phase(self, now: float) -> tuple[Phase, float]:
            visits.append(self)
            return super().phase(now)

    connections, loop = _connections(total=5 * VISITS), asyncio.get_running_loop()
    busy = [Watched(Phase.ANSWER) for _ in range(5 * VISITS)]
    for number, connection in enumerate(busy):
        assert connections.admit(connection, f"10.{number // 16}.{number % 16 * 16}.1", loop)
    busy[4 * VISITS]._phase = Phase.IDLE
    visits.clear()
    admitted = [connections.admit(Still(Phase.NEW), "198.51.100.1", loop) for _ in range(5)]
    assert admitted == [False] * 4 + [True]
    assert visits == busy[: 4 * VISITS + 1]


async def test_new_connections_are_admitted_while_all_others_wait_for_answers() -> None:
    connections = _connections(total=64)
    loop = asyncio.get_running_loop()
    for number in range(63):
        assert connections.admit(Still(Phase.ANSWER), f"10.{number}.0.1", loop)
    new = [Still(Phase.NEW) for _ in range(20)]
    assert all(connections.admit(connection, f"198.51.{number}.1", loop) for number, connection in enumerate(new))
    assert [connection.ended for connection in new] == [[Reason.CAP]] * 19 + [[]]


async def test_a_connection_that_makes_progress_does_not_give_way_and_a_new_one_is_refused() -> None:
    connections = _connections(total=1)
    active = Still(Phase.WRITE)
    loop = asyncio.get_running_loop()
    assert connections.admit(active, "192.0.2.1", loop)
    assert not connections.admit(Still(Phase.HEAD), "198.51.100.1", loop)
    assert not active.ended


@pytest.mark.parametrize("phase", [Phase.BODY, Phase.WRITE, Phase.ANSWER])
async def test_of_a_client_with_more_than_its_share_a_connection_gives_way_whatever_it_waits_for(
    phase: Phase,
) -> None:
    connections = _connections(total=24)
    loop = asyncio.get_running_loop()
    crowds = [[Still(phase) for _ in range(10)] for _ in range(2)]
    for network, crowd in enumerate(crowds):
        assert all(connections.admit(connection, f"192.0.{network}.1", loop) for connection in crowd)
    few = [Still(phase) for _ in range(4)]
    assert all(connections.admit(connection, "192.0.9.1", loop) for connection in few)
    assert all(connections.admit(Still(Phase.ANSWER), "198.51.100.1", loop) for _ in range(6))
    left = [sum(not connection.ended for connection in crowd) for crowd in crowds]
    assert (sum(left), min(left) >= 24 // 5) == (14, True)
    assert not any(connection.ended for connection in few)


@pytest.mark.parametrize("phase", [Phase.BODY, Phase.WRITE, Phase.ANSWER])
async def test_many_networks_of_one_customer_have_one_share(phase: Phase) -> None:
    connections = _connections(total=24)
    loop = asyncio.get_running_loop()
    customer = [Still(phase) for _ in range(20)]
    for number, connection in enumerate(customer):
        assert connections.admit(connection, f"2001:db8:0:{number}::1", loop)
    few = [Still(phase) for _ in range(4)]
    assert all(connections.admit(connection, "192.0.9.1", loop) for connection in few)
    assert all(connections.admit(Still(Phase.ANSWER), f"198.51.{16 * number}.1", loop) for number in range(6))
    assert [connection.ended for connection in customer] == [[Reason.CAP]] * 6 + [[]] * 14
    assert not any(connection.ended for connection in few)


async def test_a_client_may_have_two_connections_whatever_its_share_is() -> None:
    connections = _connections(total=6)
    loop = asyncio.get_running_loop()
    phases = (Phase.BODY, Phase.ANSWER)
    assert all(connections.admit(Still(phases[number % 2]), f"192.{number % 3}.2.1", loop) for number in range(6))
    assert not connections.admit(Still(Phase.NEW), "198.51.100.1", loop)


async def test_a_client_at_its_own_cap_keeps_what_waits_for_answers_while_there_are_other_places() -> None:
    connections = _connections(total=100)
    loop = asyncio.get_running_loop()
    waiting = [Still(Phase.ANSWER) for _ in range(10)]
    assert all(connections.admit(connection, "192.0.2.1", loop) for connection in waiting)
    others = [Still(Phase.IDLE) for _ in range(80)]
    assert all(connections.admit(connection, f"198.51.{number}.1", loop) for number, connection in enumerate(others))
    assert not connections.admit(Still(Phase.NEW), "192.0.2.1", loop)
    assert not any(connection.ended for connection in waiting)


@pytest.mark.parametrize("phase", [Phase.BODY, Phase.WRITE])
async def test_a_client_at_its_own_cap_does_not_shut_itself_out_by_requests_that_it_does_not_end(phase: Phase) -> None:
    connections = _connections(total=100)
    loop = asyncio.get_running_loop()
    unfinished = [Still(phase) for _ in range(10)]
    assert all(connections.admit(connection, "192.0.2.1", loop) for connection in unfinished)
    other = Still(phase)
    assert connections.admit(other, "198.51.100.1", loop)
    assert all(connections.admit(Still(Phase.ANSWER), "192.0.2.2", loop) for _ in range(4))
    assert [connection.ended for connection in unfinished] == [[Reason.CAP]] * 4 + [[]] * 6
    assert not other.ended


async def test_at_the_cap_of_its_client_a_connection_replaces_one_of_the_same_client() -> None:
    connections = _connections(total=100)
    loop = asyncio.get_running_loop()
    other, first = Still(Phase.IDLE), Still(Phase.IDLE)
    connections.admit(other, "198.51.100.1", loop)
    connections.sweep(connections.now + 1.0)
    connections.admit(first, "192.0.2.0", loop)
    connections.sweep(connections.now + 1.0)
    for host in range(1, 11):
        assert connections.admit(Still(Phase.ANSWER), f"192.0.2.{host}", loop)
    assert (first.ended, other.ended) == ([Reason.CAP], [])
    assert not connections.admit(Still(Phase.IDLE), "192.0.2.11", loop)
    assert connections.admit(Still(Phase.IDLE), "192.0.3.1", loop)


@pytest.mark.parametrize("address", [UNIX_PEER, "203.0.113.1"])
async def test_front_proxies_have_no_cap_of_a_client(address: str) -> None:
    connections = _connections(total=15)
    connections.set_trusted_proxies(trusted_addresses(("203.0.113.1",)))
    loop = asyncio.get_running_loop()
    admitted = [connections.admit(Still(Phase.ANSWER), address, loop) for _ in range(20)]
    assert admitted == [True] * 15 + [False] * 5


async def test_a_connection_that_has_ended_is_charged_to_no_client() -> None:
    connections = _connections(total=15)
    ended = Still(Phase.ANSWER)
    assert connections.admit(ended, "192.0.2.1", asyncio.get_running_loop())
    connections.forget(ended)
    connections.charge(ended, "192.0.2.7")
    assert len(connections) == 0


async def test_a_peer_that_has_left_before_its_address_was_read_is_no_front_proxy() -> None:
    connections = _connections(total=100)
    loop = asyncio.get_running_loop()
    assert [connections.admit(Still(Phase.ANSWER), "", loop) for _ in range(11)] == [True] * 10 + [False]


async def test_more_connections_than_a_new_total_become_fewer_with_each_new_one() -> None:
    connections = _connections(total=8)
    loop = asyncio.get_running_loop()
    for number in range(8):
        connections.admit(Still(Phase.IDLE), f"192.0.{number}.1", loop)
    connections.set_total(5)
    assert len(connections) == 8
    counts = []
    for number in range(5):
        assert connections.admit(Still(Phase.IDLE), f"198.51.{number}.1", loop)
        counts.append(len(connections))
    assert counts == [7, 6, 5, 5, 5]


# --- Lists over a socket: rows while the list arrives, clients that do not read, that drip, and that leave -----------


HEAD: Final = (
    b"POST /api/resolve?only=cached&fields=doi,verdict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
)
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ROW: Final = b'{"doi":"10.5555/a","verdict":"resolved"}\n'
#: Few long rows fill buffers with less work than many short ones.
ECHOING: Final = HEAD.replace(b"doi,verdict", b"input,doi,verdict")
LONG_LINE: Final = b"10.5555/a" + b" " * 1_000 + b"\n"
ROW_END: Final = b'"doi":"10.5555/a","verdict":"resolved"}\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def batches_of(served: Served) -> set[str]:
    """The tasks of lists that are running."""
    coroutines = {str(task.get_coro()) for task in asyncio.all_tasks()}
    return {one for one in coroutines if "_Batch" in one or "RowsAnswer" in one or "BodyBuffer" in one}


async def ended(served: Served) -> None:
    """Wait until no list is being answered."""
    while batches_of(served):  # noqa: ASYNC110 - tasks of other parts have no event
        await asyncio.sleep(1)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as served:
        await served.put("10.5555/a")
        yield served


async def test_rows_arrive_before_the_list_is_complete(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    for _ in range(3):
        writer.write(chunk(b"10.5555/a\n"))
        await reader.readuntil(ROW)
    writer.write(b"0\r\n\r\n")
    rest = await finish(reader, writer)
    assert rest.endswith(b"0\r\n\r\n") and b"verdict" not in rest


async def test_a_connection_whose_list_was_read_in_one_piece_can_be_used_again(served: Served) -> None:
    body = b"10.5555/a\n" * 3
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer = await served.exchange(request + request.replace(b"Host", b"Connection: close\r\nHost"))
    assert answer.count(b"HTTP/1.1 200") in (1, 2)
    assert answer.count(ROW) == 3 * answer.count(b"HTTP/1.1 200")


async def test_a_client_that_sends_everything_before_it_reads_is_answered(served: Served) -> None:
    body = LONG_LINE * 1_000
    reader, writer = await served.connect()
    writer.write(ECHOING + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    # The answer is longer than the buffers of the system, so it waits for the client.
    while not served.blocked:  # noqa: ASYNC110 - a connection that waits has no event
        await asyncio.sleep(1)
    answer = await finish(reader, writer)
    assert answer.count(ROW_END) == 1_000


async def test_a_client_that_never_reads_is_bounded_and_closed() -> None:
    async with Served() as served:
        await served.put("10.5555/a")
        _, writer = await served.connect()
        writer.write(ECHOING + b"Transfer-Encoding: chunked\r\n\r\n")

        async def send() -> None:
            while True:
                writer.write(chunk(LONG_LINE * 100))
                await writer.drain()

        sending = asyncio.create_task(send())
        await served.closed(Reason.WRITE_TIMEOUT)
        assert served.unsent == 0
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await ended(served)
        writer.close()


async def test_a_list_that_gives_way_ends_at_once_though_its_client_does_not_read() -> None:
    async with Served(**{WRITE_TIMEOUT: 3_600, MAX_OPEN: 2}) as served:
        await served.put("10.5555/a")

        async def send(writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(chunk(b"10.5555/a\n" * 1_000))
                await writer.drain()

        writers = [(await served.connect())[1] for _ in range(2)]
        for writer in writers:
            writer.write(CHUNKED)
        sending = [asyncio.create_task(send(writer)) for writer in writers]
        while served.blocked < len(writers):  # noqa: ASYNC110 - a connection that waits has no event
            await asyncio.sleep(1)
        reader, newcomer = await served.connect(client="198.51.100.7")
        # A short list has a place of its own.
        newcomer.write(HEAD + b"Connection: close\r\nContent-Length: 10000\r\n\r\n" + b"10.5555/a\n" * 1_000)
        assert ROW in await finish(reader, newcomer)
        assert served.connections.closed[Reason.WRITE_TIMEOUT] == 1
        for task, writer in zip(sending, writers, strict=True):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*sending, return_exceptions=True)
        await ended(served)


async def test_a_client_that_stops_in_the_middle_of_its_list_is_closed() -> None:
    async with Served() as served:
        await served.put("10.5555/a")
        reader, writer = await served.connect()
        writer.write(CHUNKED + chunk(b"10.5555/a\n"))
        await reader.readuntil(ROW)
        # The answer ends without its last chunk.
        assert await finish(reader, writer) == b"\r\n"
        await served.closed(Reason.BODY_TIMEOUT)
        await ended(served)


async def test_a_client_that_leaves_ends_the_work(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED + chunk(b"10.5555/a\n"))
    await reader.readuntil(ROW)
    writer.close()
    await ended(served)


async def test_a_list_that_drips_is_closed_although_its_rows_are_sent(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    rows = 0
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            writer.write(chunk(b"10.5555/a\n"))
            await reader.readuntil(ROW)
            rows += 1
            await asyncio.sleep(0.9 * BODY_TIMEOUT)
    assert rows == BODY_DEADLINES + 1
    await served.closed(Reason.BODY_TIMEOUT)


async def test_a_long_list_may_take_longer_than_a_body(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    for _ in range(2 * BODY_DEADLINES):
        # Read meanwhile, the list fits between two sockets that hold less than it.
        writer.write(chunk(b" " * round(0.9 * BODY_TIMEOUT * BODY_RATE) + b"\n10.5555/a\n"))
        await reader.readuntil(ROW)
        await asyncio.sleep(0.9 * BODY_TIMEOUT)
    assert not served.connections.closed[Reason.BODY_TIMEOUT]
    writer.close()
    await ended(served)
