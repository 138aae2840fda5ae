"""A store on a server that others write to, or that refuses writes: what can be read is served, and keys heal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from redis import Redis

from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import change_note
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.valkey.store import FEED, KEY_PREFIX, ValkeyStore
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
        MemoryStore(0, clock=clock),
        ValkeyStore(url, clock=clock, timeout=PATIENCE),
        clock=clock,
        ceiling=1e9,
    )
    for number in range(9):
        assert await cache.get(f"10.1000/{number}") == entry(f"10.1000/{number}")
    neighbour.config_set("maxmemory", "0")
    await cache.put(entry("10.1000/AFTER"))
    assert await store.get("10.1000/AFTER") == entry("10.1000/AFTER")
    await cache.close()


@pytest.mark.parametrize("key", [f"purge:{NAME}", "feed", f"entry:{NAME}"])
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
        assert NAME in heard.keys
        cursor = heard.cursor


async def test_a_feed_of_another_type_is_deleted_by_who_reads_it(
    neighbour: Any, store: ValkeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put(entry(), announce=True)
    cursor = (await store.changes(None)).cursor
    neighbour.set(FEED, "text")
    heard = await store.changes(cursor)
    assert (heard.keys, heard.data_lost) == ((), True)
    assert f"The key {FEED} on " in caplog.text
    await store.put(entry(), announce=True)
    assert (await store.changes(heard.cursor)).keys == (NAME,)


@pytest.mark.parametrize("foreign", [("SET", "text"), ("RPUSH", "text")])
async def test_a_counter_of_another_program_begins_anew(
    neighbour: Any, store: ValkeyStore, foreign: tuple[str, ...]
) -> None:
    neighbour.execute_command(foreign[0], f"{KEY_PREFIX}counter:upstream", *foreign[1:])
    assert [await store.spend("upstream") for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("foreign", [("RPUSH", "other"), ("SET", "x" * (8 * 2**20 + 1)), ("HSET", "a", "b")])
async def test_a_note_of_another_program_counts_as_none_and_is_replaced(
    neighbour: Any, store: ValkeyStore, foreign: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    neighbour.execute_command(foreign[0], f"{KEY_PREFIX}works", *foreign[1:])
    assert await store.read_note("works") is None
    assert "another program" in caplog.text and "xxx" not in caplog.text
    await change_note(store, "works", lambda before: b"ours" if before is None else before)
    assert neighbour.get(f"{KEY_PREFIX}works") == await store.read_note("works") == b"ours"


async def test_a_list_in_place_of_an_entry_is_a_miss(neighbour: Any, store: ValkeyStore) -> None:
    neighbour.rpush(f"{KEY_PREFIX}entry:{NAME}", "text")
    assert await store.get(NAME) is None
    assert not neighbour.exists(f"{KEY_PREFIX}entry:{NAME}")


@pytest.mark.parametrize(
    "fields", [{"key": "x" * 100_000}, {"key": "x" * 1_000_000}, {"other": "text"}, {"key": "x", "other": "text"}]
)
async def test_entries_of_another_program_are_deleted_by_who_reads_them(
    neighbour: Any, store: ValkeyStore, fields: dict[Any, Any]
) -> None:
    await store.put(entry(), announce=True)
    cursor = (await store.changes(None)).cursor
    for _ in range(40):
        neighbour.xadd(FEED, fields)
    heard = await store.changes(cursor)
    assert (heard.keys, heard.overrun or heard.data_lost, neighbour.exists(FEED)) == ((), True, 0)
    await store.put(entry(), announce=True)
    # Another process, which was slower, hears of it too.
    assert (await store.changes(cursor)).data_lost
    assert (await store.changes(heard.cursor)).keys == (NAME,)


async def test_names_are_announced_after_the_last_stream_id(neighbour: Any, store: ValkeyStore) -> None:
    await store.put(entry(), announce=True)
    cursor = (await store.changes(None)).cursor
    for number in range(4):
        neighbour.delete(FEED)
        neighbour.xadd(FEED, {"key": "x"}, id=f"{2**64 - 1}-{2**64 - 1}")
        await (store.put(entry(), announce=True) if number % 2 else store.delete(NAME))
        heard = await store.changes(cursor)
        assert heard.data_lost
        cursor = heard.cursor
    await store.put(entry(), announce=True)
    assert (await store.changes(cursor)).keys == (NAME,)
