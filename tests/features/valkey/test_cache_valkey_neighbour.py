"""A store on a server that others write to, or that refuses writes: what can be read is served, and keys heal."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from redis import Redis

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.purges import EVERYTHING
from doi_proxy.cache.store import change_note
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import BucketSettling, StoreError
from doi_proxy.features.valkey.layout import KEY_PREFIX
from doi_proxy.features.valkey.scripts import ANNOUNCEMENT_PAGE, LONGEST_STREAM
from doi_proxy.features.valkey.store import ValkeyStore
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_server import start_valkey

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

PATIENCE: Final = 5.0
NAME: Final = "10.1000/182"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = start_valkey()
    yield server.port
    server.stop()


@pytest.fixture
def neighbour(port: int) -> Iterator[Any]:
    """Another client of the server."""
    with Redis(port=port) as client:
        client.flushall()
        yield client
        # Also if the test failed while the server was full.
        client.config_set("maxmemory", "0")


@pytest.fixture
async def store(port: int, neighbour: Any, clock: Clock) -> AsyncIterator[ValkeyStore]:
    store = ValkeyStore(f"valkey://127.0.0.1:{port}/0", clock=clock, timeout=PATIENCE)
    yield store
    await store.close()


async def test_a_process_that_starts_on_a_full_server_answers_what_is_stored(
    port: int, neighbour: Any, store: ValkeyStore, clock: Clock
) -> None:
    for number in range(9):
        await store.put(entry(f"10.1000/{number}"))
    neighbour.config_set("maxmemory", "1")
    url = f"valkey://127.0.0.1:{port}/0"
    cache = TieredStore(
        MemoryStore(0, clock=clock, timer=clock),
        ValkeyStore(url, clock=clock, timeout=PATIENCE),
        clock=clock,
        ceiling=1e9,
    )
    # The tokens of the server may be spent.
    assert await cache.take("upstream", 100, 100) == 0.01
    clock.advance(1.0)
    for number in range(9):
        assert await cache.get(f"10.1000/{number}") == entry(f"10.1000/{number}")
        assert await cache.lease(f"10.1000/{number}", "here", 20)
        assert await cache.take("upstream", 100, 100) == 0.0
    assert (cache.counters.lease_fallbacks, cache.counters.budget_fallbacks) == (9, 10)
    neighbour.config_set("maxmemory", "0")
    await cache.put(entry("10.1000/AFTER"))
    assert await store.get("10.1000/AFTER") == entry("10.1000/AFTER")
    await cache.close()


@pytest.mark.parametrize("key", ["purges", "announcements", f"entry:{NAME}"])
async def test_an_entry_is_stored_although_a_key_had_data_of_another_program(
    neighbour: Any, store: ValkeyStore, key: str
) -> None:
    cursor = (await store.changes(None)).cursor
    for foreign in (("SET", "text"), ("RPUSH", "list")):
        neighbour.delete(KEY_PREFIX + key)
        neighbour.execute_command(foreign[0], KEY_PREFIX + key, foreign[1])
        await store.put(entry(), announce=True, sent_at=0.0, unless_newer=True)
        assert await store.get(NAME) == entry()
        await store.delete("10.1000/OTHER")
        heard = await store.changes(cursor)
        assert NAME in heard.keys or heard.overrun
        cursor = heard.cursor


async def test_announcements_of_another_type_are_deleted_by_who_reads_them(
    neighbour: Any, store: ValkeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    cursor = (await store.changes(None)).cursor
    neighbour.set(f"{KEY_PREFIX}announcements", "text")
    with caplog.at_level(logging.WARNING):
        heard = await store.changes(cursor)
    assert (heard.keys, heard.overrun) == ((), True)
    assert f"{KEY_PREFIX}announcements had data of another program" in caplog.text
    await store.put(entry(), announce=True)
    assert (await store.changes(heard.cursor)).keys == (NAME,)


@pytest.mark.parametrize("foreign", [("SET", "text"), ("HSET", "tokens", "nan", "at", "x", "blocked_until", "inf")])
async def test_a_bucket_of_another_program_gives_tokens(
    neighbour: Any, store: ValkeyStore, foreign: tuple[str, ...]
) -> None:
    neighbour.execute_command(foreign[0], f"{KEY_PREFIX}bucket:upstream", *foreign[1:])
    # What the server has counted may be lost.
    with suppress(BucketSettling):
        await store.take("upstream", 10, 10)
    neighbour.hset(f"{KEY_PREFIX}bucket:upstream", "settles_until", "0")
    assert 0 <= await store.take("upstream", 10, 10) <= 3_601


async def test_a_list_in_place_of_a_lease_is_nobodys(neighbour: Any, store: ValkeyStore) -> None:
    neighbour.rpush(f"{KEY_PREFIX}lease:{NAME}", "other")
    assert await store.lease(NAME, "here", 20)
    assert not await store.lease(NAME, "there", 20)
    await store.release(NAME, "here")
    assert await store.lease(NAME, "there", 20)


@pytest.mark.parametrize("foreign", [("RPUSH", "other"), ("SET", "x" * (8 * 2**20 + 1)), ("HSET", "a", "b")])
async def test_a_note_of_another_program_counts_as_none_and_is_replaced(
    neighbour: Any, store: ValkeyStore, foreign: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    neighbour.execute_command(foreign[0], f"{KEY_PREFIX}works", *foreign[1:])
    assert await store.read_note("works") is None
    assert "replaced" in caplog.text and "xxx" not in caplog.text
    await change_note(store, "works", lambda before: b"ours" if before is None else before)
    assert neighbour.get(f"{KEY_PREFIX}works") == await store.read_note("works") == b"ours"


async def test_a_list_in_place_of_an_entry_is_an_error_and_no_outage(neighbour: Any, store: ValkeyStore) -> None:
    await store.put(entry("10.1000/GOOD"))
    neighbour.rpush(f"{KEY_PREFIX}entry:{NAME}", "text")
    with pytest.raises(StoreError, match="another program"):
        await store.get(NAME)
    assert await store.get("10.1000/GOOD") == entry("10.1000/GOOD")


async def test_a_flood_of_announcements_is_deleted_by_who_reads_it(neighbour: Any, store: ValkeyStore) -> None:
    cursor = (await store.changes(None)).cursor
    for _ in range(40):
        neighbour.xadd(f"{KEY_PREFIX}announcements", {"key": "x" * 100_000})
    heard = await store.changes(cursor)
    assert (heard.keys, heard.overrun, neighbour.xlen(f"{KEY_PREFIX}announcements")) == ((), True, 1)
    # Another process, which was slower, hears that it missed something.
    assert (await store.changes(cursor)).keys == (EVERYTHING,)
    await store.put(entry(), announce=True)
    assert (await store.changes(heard.cursor)).keys == (NAME,)


async def test_a_long_stream_is_deleted_by_who_reads_it(neighbour: Any, store: ValkeyStore) -> None:
    cursor = (await store.changes(None)).cursor
    waiting = neighbour.pipeline(transaction=False)
    for _ in range(LONGEST_STREAM + 1):
        waiting.xadd(f"{KEY_PREFIX}announcements", {"key": NAME})
    waiting.execute()
    heard = await store.changes(cursor)
    assert (heard.keys, heard.overrun, neighbour.xlen(f"{KEY_PREFIX}announcements")) == ((), True, 1)


async def test_announcements_that_are_not_ours_are_left_out(neighbour: Any, store: ValkeyStore) -> None:
    await store.put(entry(), announce=True)
    cursor = (await store.changes(None)).cursor
    for _ in range(ANNOUNCEMENT_PAGE):
        neighbour.xadd(f"{KEY_PREFIX}announcements", {"other": "text"})
    await store.put(entry(), announce=True)
    assert (await store.changes(cursor)).keys == (NAME,)


async def test_names_are_purged_and_announced_after_the_last_stream_id(neighbour: Any, store: ValkeyStore) -> None:
    cursor = (await store.changes(None)).cursor
    # So often that some follow within a millisecond, the resolution of the ids that the server gives.
    for number in range(20):
        change = store.put(entry(), announce=True) if number % 2 else store.delete(NAME)
        neighbour.delete(f"{KEY_PREFIX}announcements")
        neighbour.xadd(f"{KEY_PREFIX}announcements", {"key": "x"}, id=f"{2**64 - 1}-{2**64 - 1}")
        await change
        heard = await store.changes(cursor)
        assert EVERYTHING in heard.keys
        cursor = heard.cursor
    await store.put(entry(), announce=True)
    assert (await store.changes(cursor)).keys == (NAME,)


async def test_an_announcement_is_read_however_often_the_last_stream_id_is_used(
    neighbour: Any, store: ValkeyStore
) -> None:
    stream, last = f"{KEY_PREFIX}announcements", f"{2**64 - 1}-{2**64 - 1}"
    cursor = (await store.changes(None)).cursor
    for _ in range(2):
        await store.put(entry(), announce=True)
        neighbour.delete(stream)
        neighbour.xadd(stream, {"key": "x"}, id=last)
        heard = await store.changes(cursor)
        assert heard.overrun
        cursor = heard.cursor
    await store.put(entry(), announce=True)
    assert (await store.changes(cursor)).keys == (NAME,)
