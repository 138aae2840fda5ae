"""One server: which failure keeps which commands from it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from redis import Redis

from app.errors import StoreError
from app.features.valkey.node import PAUSE, Gate, Kind, Node, command
from app.features.valkey.url import Address
from tests.clock import Clock
from tests.features.valkey.valkey_server import start_valkey

pytestmark = pytest.mark.anyio

READ: Final = command("GET", "key")
WRITE: Final = command("SET", "key", "value")
REFUSED: Final = "failed a moment ago"


class TestGate:
    def test_after_a_failure_nothing_is_sent_for_a_while(self, clock: Clock) -> None:
        gate = Gate(clock)
        assert not gate.is_closed
        gate.close()
        assert gate.is_closed
        clock.advance(PAUSE)
        assert not gate.is_closed

    def test_then_one_command_at_a_time_finds_out(self, clock: Clock) -> None:
        gate = Gate(clock)
        gate.close()
        clock.advance(PAUSE)
        gate.enter()
        assert gate.is_closed
        gate.leave()
        assert not gate.is_closed

    def test_a_success_lets_all_through(self, clock: Clock) -> None:
        gate = Gate(clock)
        gate.close()
        clock.advance(PAUSE)
        gate.enter()
        gate.open()
        assert not gate.is_closed

    def test_a_clock_that_was_set_back_prolongs_nothing(self, clock: Clock) -> None:
        gate = Gate(clock)
        gate.close()
        clock.advance(-3_600)
        assert not gate.is_closed


@pytest.fixture
async def silent(clock: Clock) -> AsyncIterator[Node]:
    """A server that answers nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        node = Node(Address("127.0.0.1", listening.getsockname()[1]), {}, clock=clock, timeout=0.01)
        yield node
        await node.close()


@pytest.fixture
def valkey() -> Iterator[Any]:
    """A client of a server that one test has for itself."""
    server = start_valkey()
    with Redis(port=server.port) as client:
        yield client
        # Nothing else ends a server that refuses the default user.
        server.stop()


async def fail(node: Node, kind: Kind, match: str) -> None:
    with pytest.raises(StoreError, match=match):
        await node.call(READ if kind is Kind.READ else WRITE, kind)


async def test_a_timeout_of_work_that_is_done_once_is_no_outage(silent: Node) -> None:
    for _ in range(3):
        await fail(silent, Kind.ONCE, "Timeout")
    assert not await refuses(silent)


async def test_a_write_that_is_not_answered_keeps_writes_away_and_no_reads(silent: Node) -> None:
    await fail(silent, Kind.WRITE, "failed: ")
    await fail(silent, Kind.ONCE, REFUSED)
    assert not await refuses(silent)


async def test_a_read_that_is_not_answered_keeps_everything_away(silent: Node) -> None:
    await fail(silent, Kind.READ, "failed: ")
    for kind in Kind:
        await fail(silent, kind, REFUSED)


async def refuses(node: Node) -> bool:
    """Whether reads are refused at once."""
    with pytest.raises(StoreError) as raised:
        await node.call(READ, Kind.READ)
    return REFUSED in raised.value.message


def port_of(client: Any) -> int:
    return int(client.get_connection_kwargs()["port"])


@pytest.mark.valkey
async def test_a_server_that_delays_writes_is_read(valkey: Any, clock: Clock) -> None:
    node = Node(Address("127.0.0.1", port_of(valkey)), {}, clock=clock, timeout=1.0)
    await node.call(WRITE, Kind.WRITE)
    valkey.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    impatient = Node(Address("127.0.0.1", port_of(valkey)), {}, clock=clock, timeout=0.05)
    await fail(impatient, Kind.WRITE, "failed: ")
    assert await node.call(READ, Kind.READ) == b"value"
    valkey.execute_command("CLIENT", "UNPAUSE")
    await node.close()
    await impatient.close()


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
    node = Node(Address("127.0.0.1", port_of(valkey)), {}, clock=clock, timeout=5.0)
    await node.call(WRITE, Kind.WRITE)
    valkey.execute_command(*refusal)
    for kind in (Kind.WRITE, Kind.ONCE, Kind.WRITE):
        await fail(node, kind, "failed: ")
        assert await node.call(READ, Kind.READ) == b"value"
    await node.close()
