"""One server: which failure keeps which commands from it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from doi_proxy.errors import StoreError, StoreSlow
from doi_proxy.features.valkey.node import PAUSE, Access, CommandPause, Node, Work, command
from doi_proxy.features.valkey.servers import open_servers
from doi_proxy.features.valkey.url import parse_store_url
from tests.clock import Clock
from tests.features.valkey.valkey_server import start_valkey
from tests.ports import free_port

# A silent server is a socket of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

READ: Final[Work[Any]] = command("GET", "key")
WRITE: Final[Work[Any]] = command("SET", "key", "value")
REFUSED: Final = "failed a moment ago"


class TestPause:
    def test_after_a_failure_nothing_is_sent_for_a_while(self, clock: Clock) -> None:
        pause = CommandPause(clock)
        assert not pause.is_in_force
        pause.begin()
        assert pause.is_in_force
        clock.advance(PAUSE)
        assert not pause.is_in_force

    def test_then_one_command_at_a_time_finds_out(self, clock: Clock) -> None:
        pause = CommandPause(clock)
        pause.begin()
        clock.advance(PAUSE)
        pause.enter()
        assert pause.is_in_force
        pause.leave()
        assert not pause.is_in_force

    def test_a_success_lets_all_through(self, clock: Clock) -> None:
        pause = CommandPause(clock)
        pause.begin()
        clock.advance(PAUSE)
        pause.enter()
        pause.end()
        assert not pause.is_in_force

    def test_a_clock_that_was_set_back_prolongs_nothing(self, clock: Clock) -> None:
        pause = CommandPause(clock)
        pause.begin()
        clock.advance(-3_600)
        assert not pause.is_in_force


@asynccontextmanager
async def opened(port: int, clock: Clock, timeout: float) -> AsyncIterator[Node]:
    servers = open_servers(parse_store_url(f"valkey://127.0.0.1:{port}"), clock=clock, timeout=timeout)
    yield await servers.find(0, Access.READ)
    await servers.close()


@pytest.fixture
async def silent(clock: Clock) -> AsyncIterator[Node]:
    """A server that answers nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        async with opened(listening.getsockname()[1], clock, 0.01) as node:
            yield node


@pytest.fixture
def valkey() -> Iterator[Any]:
    """A client of a server that one test has for itself."""
    server = start_valkey()
    with Redis(port=server.port) as client:
        yield client
        # Nothing else ends a server that refuses the default user.
        server.stop()


async def fail(node: Node, access: Access, match: str) -> None:
    with pytest.raises(StoreError, match=match):
        await node.call(READ if access in (Access.READ, Access.LATE) else WRITE, access)


async def test_a_timeout_of_work_that_is_done_once_is_no_outage(silent: Node) -> None:
    for _ in range(3):
        await fail(silent, Access.ONCE, "Timeout")
    assert not await refuses(silent)


class Stub:
    """A server that answers, or lets every command time out that was sent before `end`."""

    def __init__(self) -> None:
        self.is_silent = False
        self.end = asyncio.Event()

    async def execute_command(self, *words: str | bytes | float) -> Any:
        if self.is_silent:
            await self.end.wait()
            raise RedisTimeoutError("Timeout")
        return b"value"


async def call_once(node: Node) -> type[Exception] | None:
    try:
        await node.call(WRITE, Access.ONCE)
    except StoreError as error:
        return type(error)
    return None


async def test_a_server_is_down_at_the_second_timeout_in_a_row(clock: Clock) -> None:
    server = Stub()
    node = Node("host:1", server, server, clock=clock)
    server.end.set()
    for _ in range(2):
        server.is_silent = True
        assert [await call_once(node) for _ in range(3)] == [StoreSlow, StoreError, StoreError]
        server.is_silent = False
        assert await call_once(node) is None


async def test_commands_that_time_out_together_are_one_timeout(clock: Clock) -> None:
    server = Stub()
    node = Node("host:1", server, server, clock=clock)
    server.is_silent = True
    calls = [asyncio.create_task(call_once(node)) for _ in range(5)]
    await asyncio.sleep(0)
    server.end.set()
    assert await asyncio.gather(*calls) == [StoreSlow] * 5
    assert await call_once(node) is StoreError


async def test_a_connection_that_is_refused_is_no_timeout(clock: Clock) -> None:
    async with opened(free_port(), clock, 30.0) as node:
        assert await call_once(node) is StoreError


async def test_a_write_that_is_not_answered_keeps_writes_away_and_no_reads(silent: Node) -> None:
    await fail(silent, Access.WRITE, "failed: ")
    await fail(silent, Access.ONCE, REFUSED)
    assert not await refuses(silent)


async def test_a_read_that_is_not_answered_keeps_everything_away(silent: Node) -> None:
    await fail(silent, Access.READ, "failed: ")
    for access in (Access.READ, Access.WRITE, Access.ONCE):
        await fail(silent, access, REFUSED)


async def test_a_late_read_is_tried_once_in_the_time_of_a_pause(clock: Clock) -> None:
    async with opened(free_port(), clock, 30.0) as node:
        await fail(node, Access.READ, "failed: ")
        await fail(node, Access.LATE, "failed: ")
        await fail(node, Access.LATE, REFUSED)
        clock.advance(PAUSE)
        await fail(node, Access.LATE, "failed: ")


async def refuses(node: Node) -> bool:
    """Whether reads are refused at once."""
    with pytest.raises(StoreError) as raised:
        await node.call(READ, Access.READ)
    return REFUSED in raised.value.message


def port_of(client: Any) -> int:
    return int(client.get_connection_kwargs()["port"])


@pytest.mark.valkey
async def test_a_server_that_delays_writes_is_read(valkey: Any, clock: Clock) -> None:
    async with opened(port_of(valkey), clock, 30.0) as node, opened(port_of(valkey), clock, 0.05) as impatient:
        await node.call(WRITE, Access.WRITE)
        valkey.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        await fail(impatient, Access.WRITE, "failed: ")
        assert await node.call(READ, Access.READ) == b"value"
        valkey.execute_command("CLIENT", "UNPAUSE")


@pytest.mark.valkey
@pytest.mark.parametrize(
    "refusal",
    [
        ("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction"),
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("ACL", "SETUSER", "default", "-set"),
        ("REPLICAOF", "127.0.0.1", "1"),
    ],
)
async def test_a_server_that_refuses_writes_is_read(valkey: Any, clock: Clock, refusal: tuple[str, ...]) -> None:
    async with opened(port_of(valkey), clock, 5.0) as node:
        await node.call(WRITE, Access.WRITE)
        valkey.execute_command(*refusal)
        for access in (Access.WRITE, Access.ONCE, Access.WRITE):
            await fail(node, access, "failed: ")
            assert await node.call(READ, Access.READ) == b"value"
