"""The server of a store: which failure keeps commands from it, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from redis import Redis

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.client import PAUSE, ValkeyServer
from tests.clock import Clock
from tests.features.valkey.relay import Relay, running_relay
from tests.features.valkey.valkey_server import start_valkey

pytestmark = [pytest.mark.anyio, pytest.mark.valkey]

REFUSED: Final = "failed a moment ago"


@pytest.fixture
def valkey() -> Iterator[Any]:
    """A client of a server that one test has for itself."""
    server = start_valkey()
    with Redis(port=server.port) as client:
        yield client
        # Nothing else ends a server that refuses the default user.
        server.stop()


@pytest.fixture
async def relay(valkey: Any) -> AsyncIterator[Relay]:
    async with running_relay(valkey.get_connection_kwargs()["port"]) as relay:
        yield relay


async def read(server: ValkeyServer) -> Any:
    return await server.call("GET", "key", read=lambda reply: reply)


async def write(server: ValkeyServer) -> Any:
    return await server.call("SET", "key", "value", read=lambda reply: reply)


async def fail(server: ValkeyServer, match: str, cause: str = "store-timeout") -> None:
    with pytest.raises(StoreError, match=match) as raised:
        await read(server)
    assert raised.value.cause == cause


async def test_after_a_timeout_nothing_is_sent_for_a_while(relay: Relay, clock: Clock) -> None:
    server = ValkeyServer(f"valkey://127.0.0.1:{relay.port}", clock=clock, timeout=0.5)
    relay.unanswered = 4
    await fail(server, "failed: ")
    for _ in range(3):
        await fail(server, REFUSED)
    clock.advance(PAUSE)
    await fail(server, "failed: ")
    assert relay.seen[b"GET"] == 4, "each is repeated once"
    clock.advance(PAUSE)
    assert await read(server) is None
    assert await read(server) is None
    await server.close()


async def test_a_clock_that_was_set_back_prolongs_nothing(relay: Relay, clock: Clock) -> None:
    server = ValkeyServer(f"valkey://127.0.0.1:{relay.port}", clock=clock, timeout=0.5)
    relay.unanswered = 2
    await fail(server, "failed: ")
    clock.advance(-3_600)
    assert await read(server) is None
    await server.close()


async def test_one_command_that_is_not_answered_is_repeated(relay: Relay, clock: Clock) -> None:
    server = ValkeyServer(f"valkey://127.0.0.1:{relay.port}", clock=clock, timeout=0.5)
    relay.unanswered = 1
    assert await read(server) is None
    await server.close()


@pytest.mark.parametrize(
    "refusal",
    [
        ("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction"),
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("ACL", "SETUSER", "default", "-set"),
        ("REPLICAOF", "127.0.0.1", "1"),
    ],
)
async def test_a_server_that_refuses_writes_is_read(relay: Relay, valkey: Any, clock: Clock, refusal: Any) -> None:
    server = ValkeyServer(f"valkey://127.0.0.1:{relay.port}", clock=clock, timeout=5.0)
    await write(server)
    valkey.execute_command(*refusal)
    for _ in range(3):
        with pytest.raises(StoreError, match="failed: ") as raised:
            await write(server)
        assert raised.value.cause == "store-refuses"
        assert await read(server) == b"value"
    await server.close()


async def test_a_server_that_was_restarted_is_used_at_once(clock: Clock) -> None:
    started = start_valkey()
    server = ValkeyServer(f"valkey://127.0.0.1:{started.port}", clock=clock, timeout=5.0)
    await write(server)
    started.stop()
    started.start()
    assert await read(server) is None
    started.stop()
    await server.close()
