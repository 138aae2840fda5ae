"""A server that is slow for a moment: a name whose record it has is not refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from redis import Redis

from doi_names.name import HandleName
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify, StoreError
from doi_proxy.features.valkey.store import ValkeyStore
from doi_proxy.resolver.failure_memory import FailureMemory
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import Origin
from doi_proxy.resolver.resolver import Resolver
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.relay import Relay, running_relay
from tests.parts import usual_api, usual_options

pytestmark = [pytest.mark.anyio, pytest.mark.valkey]

#: Seconds until a store gives up a reply that does not come, and until one that comes is given up.
SHORT: Final = 0.05
PATIENCE: Final = 5.0
#: Attempts of one look-up.
ATTEMPTS: Final = 2
NAMES: Final = [f"10.1000/{number}" for number in range(3)]
STORED: Final = [entry(name, url="http://example.org/stored") for name in NAMES]
OUT_OF_MEMORY: Final = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


@pytest.fixture
async def relay(valkey_url: str) -> AsyncIterator[Relay]:
    """A relay in front of a server that has the records."""
    port = int(valkey_url.rpartition(":")[2].partition("/")[0])
    with Redis(port=port) as client:
        client.flushall()
    async with running_relay(port) as relay:
        filling = ValkeyStore(f"valkey://127.0.0.1:{relay.port}/0", clock=Clock(), timeout=PATIENCE)
        for one in STORED:
            await filling.put(one)
        await filling.close()
        relay.command = b"GET"
        yield relay


@asynccontextmanager
async def resolving(relay: Relay, clock: Clock, *, has_read: bool, timeout: float = SHORT) -> AsyncIterator[Resolver]:
    """A resolver whose upstream is down. With `has_read`, it has read something from its store."""
    store = ValkeyStore(f"valkey://127.0.0.1:{relay.port}/0", clock=clock, timeout=timeout)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=1e9)
    source = usual_api("http://127.0.0.1:1", clock=clock)
    failures = FailureMemory(ttl=60, most=10, max_bytes=10_000)
    resolver = Resolver(cache, source, clock, options=usual_options(), failures=failures)
    if has_read:
        while await cache.get("10.1000/OTHER") is not None or any(known.under_way for known in cache.incidents):
            clock.advance(10)
    yield resolver
    await resolver.close()
    await source.aclose()
    await cache.close()


@pytest.mark.parametrize("has_read", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize(("late", "origin"), [(0, Origin.HIT), (1, Origin.STALE)], ids=["fresh", "stale"])
async def test_a_name_is_read_for_longer_before_it_is_refused(
    relay: Relay, clock: Clock, has_read: bool, late: float, origin: Origin
) -> None:
    if late:
        clock.advance(STORED[0].fresh_until - clock() + late)
    async with resolving(relay, clock, has_read=has_read) as resolver:
        relay.unanswered = ATTEMPTS
        # The clock stands still, so usual reads are refused after the first name.
        for name in NAMES:
            found = await resolver.resolve(HandleName(name))
            assert (found.origin, found.record.values[0].text) == (origin, "http://example.org/stored")
        assert relay.unanswered == 0


async def test_a_key_whose_read_failed_is_read_late_by_every_request(relay: Relay, clock: Clock) -> None:
    store = ValkeyStore(f"valkey://127.0.0.1:{relay.port}/0", clock=clock, timeout=SHORT)
    relay.unanswered = ATTEMPTS
    with pytest.raises(StoreError):
        await store.get(NAMES[0])
    assert [await store.get_late(NAMES[0]) for _ in range(2)] == [STORED[0]] * 2
    await store.close()


async def test_a_client_that_wants_no_query_gets_the_record_too(relay: Relay, clock: Clock) -> None:
    async with resolving(relay, clock, has_read=True) as resolver:
        relay.unanswered = ATTEMPTS
        found = await resolver.resolve(HandleName(NAMES[0]), Conditions(only_cached=True))
        assert found.origin is Origin.HIT


async def test_a_bypass_is_charged_once(relay: Relay, clock: Clock) -> None:
    async with resolving(relay, clock, has_read=True) as resolver:
        relay.unanswered, charged = ATTEMPTS, list[int]()
        conditions = Conditions(authoritative=True, admit_bypass=lambda: charged.append(1))
        found = await resolver.resolve(HandleName(NAMES[0]), conditions)
        assert (found.origin, charged) == (Origin.STALE, [1])


async def test_a_name_that_the_store_does_not_have_is_read_once_more(relay: Relay, clock: Clock) -> None:
    """Another process can have stored it since the first read."""
    async with resolving(relay, clock, has_read=True, timeout=PATIENCE) as resolver:
        before = relay.seen[b"GET"]
        with pytest.raises(CouldNotVerify):
            await resolver.resolve(HandleName("10.1000/unknown"))
        assert relay.seen[b"GET"] == before + 1 + 1


async def test_a_store_that_cannot_be_reached_is_not_tried_for_each_name(relay: Relay, clock: Clock) -> None:
    async with resolving(relay, clock, has_read=True, timeout=PATIENCE) as resolver:
        relay.reply = b"*2000000000\r\n"  # ends the connection
        before = relay.seen[b"GET"]
        for name in NAMES:
            with pytest.raises(CouldNotVerify):
                await resolver.resolve(HandleName(name))
        assert relay.seen[b"GET"] == before + 1 + 1


async def test_a_store_that_refuses_writes_is_read_by_one_command(relay: Relay, clock: Clock) -> None:
    store = ValkeyStore(f"valkey://127.0.0.1:{relay.port}/0", clock=clock, timeout=PATIENCE)
    relay.command, relay.reply = b"EVALSHA", OUT_OF_MEMORY
    before = relay.seen.copy()
    for name in NAMES:
        assert await store.get(name) is not None
    assert relay.seen - before == {b"GET": len(NAMES)}
    await store.close()
