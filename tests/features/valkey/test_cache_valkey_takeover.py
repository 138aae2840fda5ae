"""The tokens of a bucket when another server takes it over, or a process is back from an outage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import BucketSettling, StoreError
from doi_proxy.features.valkey.layout import KEY_PREFIX
from doi_proxy.features.valkey.node import PAUSE
from doi_proxy.features.valkey.scripts import SETTLING
from doi_proxy.features.valkey.store import ValkeyStore
from tests.clock import Clock
from tests.features.valkey.valkey_server import start_valkey

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

#: Slow enough that the time a test takes changes no answer: a token takes 100 seconds.
RATE, BURST = 0.01, 5.0
KEY = f"{KEY_PREFIX}bucket:upstream"
PATIENCE = 5.0


@pytest.fixture
async def server(valkey_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey_url.replace("valkey", "redis", 1)) as one:
        await one.delete(KEY)
        # It has counted the tokens for long.
        await one.hset(KEY, "server", (await one.info("server"))["run_id"])
        yield one


@pytest.fixture
async def store(valkey_url: str, clock: Clock) -> AsyncIterator[ValkeyStore]:
    one = ValkeyStore(valkey_url, clock=clock, timeout=PATIENCE)
    yield one
    await one.close()


async def let_pass(server: Redis, seconds: float) -> None:
    """Let time pass: the server's clock cannot be set, so the times in the bucket move back."""
    for field in ("at", "blocked_until", "settles_until"):
        await server.hincrbyfloat(KEY, field, -seconds)


def about(seconds: float) -> object:
    return pytest.approx(seconds, abs=20.0)


async def test_a_server_that_took_over_gives_no_token_and_then_begins_with_none(
    server: Redis, store: ValkeyStore
) -> None:
    assert await store.take("upstream", RATE, BURST) == 0.0
    await server.hset(KEY, "server", "another one")
    for _ in range(2):
        with pytest.raises(BucketSettling):
            await store.take("upstream", RATE, BURST)
    await let_pass(server, SETTLING)
    assert await store.take("upstream", RATE, BURST) == about(100)
    await let_pass(server, 110)
    assert await store.take("upstream", RATE, BURST) == 0.0


async def test_a_back_off_holds_while_a_server_takes_over(server: Redis, store: ValkeyStore) -> None:
    await store.take("upstream", RATE, BURST)
    await store.back_off("upstream", 1_000)
    await server.hset(KEY, "server", "another one")
    assert await store.take("upstream", RATE, BURST) == about(1_100)
    await let_pass(server, SETTLING)
    assert await store.take("upstream", RATE, BURST) == about(1_100)


async def test_a_clock_that_was_set_back_does_not_prolong_the_time_without_tokens(
    server: Redis, store: ValkeyStore
) -> None:
    assert await store.take("upstream", RATE, BURST) == 0.0
    await server.hset(KEY, "settles_until", 1e13)
    assert await store.take("upstream", RATE, BURST) == 0.0


async def test_a_user_who_may_not_call_info_gets_tokens(server: Redis, valkey_url: str, clock: Clock) -> None:
    await server.acl_setuser(
        "narrow", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-info"]
    )
    store = ValkeyStore(valkey_url.replace("//", "//narrow:secret@"), clock=clock, timeout=PATIENCE)
    await server.delete(KEY)
    with pytest.raises(BucketSettling):
        await store.take("upstream", RATE, BURST)
    await let_pass(server, SETTLING + BURST / RATE)
    assert [await store.take("upstream", RATE, BURST) for _ in range(2)] == [0.0, 0.0]
    await store.close()


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_server_without_its_data_gives_no_token_also_to_a_process_that_saw_no_outage(
    clock: Clock, is_first: bool
) -> None:
    server = start_valkey()
    url = f"valkey://127.0.0.1:{server.port}/0"
    here, there = (ValkeyStore(url, clock=clock, timeout=PATIENCE) for _ in range(2))
    server.terminate()
    for _ in range(2):
        with pytest.raises(StoreError):
            await here.take("upstream", RATE, BURST)
        clock.advance(PAUSE)
    server.start()
    for store in (there, here) if is_first else (here, there):
        with pytest.raises(BucketSettling):
            await store.take("upstream", RATE, BURST)
    await here.close()
    await there.close()
    server.stop()


async def fail(server: Redis, store: ValkeyStore, clock: Clock) -> None:
    """Let the server refuse one command."""
    await server.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreError):
            await store.take("upstream", RATE, BURST)
    finally:
        await server.config_set("maxmemory", 0)
    clock.advance(PAUSE)


async def test_a_process_that_is_back_from_an_outage_gets_no_token_until_all_are(
    server: Redis, store: ValkeyStore, clock: Clock
) -> None:
    for _ in range(2):
        await fail(server, store, clock)
    with pytest.raises(BucketSettling):
        await store.take("upstream", RATE, BURST)


async def test_one_command_that_fails_is_not_an_outage(server: Redis, store: ValkeyStore, clock: Clock) -> None:
    await fail(server, store, clock)
    assert await store.take("upstream", RATE, BURST) == 0.0


async def test_meanwhile_each_process_has_its_part_and_the_store_counts_as_up(
    server: Redis, store: ValkeyStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = TieredStore(MemoryStore(1_000, clock=clock, timer=clock), store, clock=clock, ceiling=86_400.0)
    assert await cache.take("upstream", 8, 8, processes=4) == 0.0
    await server.hset(KEY, "server", "another one")
    assert await cache.take("upstream", 8, 8, processes=4) == 0.5
    clock.advance(0.5)
    assert await cache.take("upstream", 8, 8, processes=4) == 0.0
    assert (cache.counters.budget_fallbacks, cache.counters.store_errors, caplog.records) == (2, 0, [])
