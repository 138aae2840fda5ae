"""Two releases share a store during a rolling upgrade: each reads what the other wrote, or takes it for a miss."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import Any, Final
from zlib import crc32

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from app.cache.entry import Entry
from app.cache.store import SharedStore
from app.features.sqlite.store import SqliteStore
from app.features.stored_entry import pack
from app.features.valkey.layout import Layout, find_layout, partitions_of_cluster
from app.features.valkey.store import ValkeyStore
from app.features.valkey.url import StoreKind
from app.handle.answer import Answer, ResponseCode
from tests.cache.entries import entry, missing, proven, verified
from tests.clock import Clock

pytestmark = pytest.mark.anyio

#: The format of release 0.2: version, response code, fetched, fresh until, stale until, and the values as JSON.
_VERSION_2: Final = Struct("<BBddd")
_CHECKSUM: Final = Struct("<I")


def write_version_2(one: Entry) -> bytes:
    """What release 0.2 writes."""
    times = one.fetched_at, one.fresh_until, one.stale_until
    body = _VERSION_2.pack(2, int(one.answer.code), *times) + one.answer.values
    return _CHECKSUM.pack(crc32(body, crc32(one.key.encode()))) + body


def read_version_2(key: str, data: bytes) -> Entry | None:
    """What release 0.2 reads: None is a miss. Raises AssertionError for what it reports as damage."""
    assert len(data) >= _CHECKSUM.size + _VERSION_2.size
    body = data[_CHECKSUM.size :]
    assert crc32(body, crc32(key.encode())) == _CHECKSUM.unpack_from(data)[0]
    version, code, *times = _VERSION_2.unpack_from(body)
    return Entry(key, Answer(ResponseCode(code), body[_VERSION_2.size :]), *times) if version == 2 else None


#: Replaces the stored bytes of a name by others.
Overwrite = Callable[[str, bytes], Awaitable[None]]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("valkey", marks=pytest.mark.valkey),
        pytest.param("cluster", marks=pytest.mark.valkey),
    ]
)
async def opened(
    request: pytest.FixtureRequest, clock: Clock, tmp_path: Path
) -> AsyncIterator[tuple[SharedStore, Overwrite]]:
    """A store, and what another release does to it."""
    if request.param == "sqlite":
        file = tmp_path / "store.sqlite3"
        store: SharedStore = SqliteStore(file, clock=clock, max_bytes=100_000_000)
        yield store, lambda key, data: overwrite_row(store, file, key, data)
        await store.close()
    else:
        url, client, layout = find_server(request)
        store = ValkeyStore(url, clock=clock, timeout=5.0)
        yield store, lambda key, data: client.set(layout.find(key).entry(key), data)
        await store.close()
        await client.aclose()


def find_server(request: pytest.FixtureRequest) -> tuple[str, Any, Layout]:
    if request.param == "valkey":
        url = request.getfixturevalue("valkey_url")
        return url, Redis.from_url(url.replace("valkey", "redis", 1)), find_layout(StoreKind.SERVER)
    cluster = request.getfixturevalue("session_cluster")
    return cluster.url, RedisCluster("127.0.0.1", cluster.servers[0].port), partitions_of_cluster()


async def overwrite_row(store: SharedStore, file: Path, key: str, data: bytes) -> None:
    await store.put(entry(key))
    await store.flush()
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute("UPDATE entries SET data = ? WHERE key = ?", (data, key)).rowcount == 1


@pytest.mark.parametrize("one", [entry("10.1000/FORMAT"), missing("10.1000/FORMAT")], ids=["record", "not found"])
async def test_an_entry_of_the_release_before_is_read(opened: tuple[SharedStore, Overwrite], one: Entry) -> None:
    store, overwrite = opened
    await overwrite(one.key, write_version_2(one))
    assert await store.get(one.key) == one
    assert [found async for found in store.scan("10.1000/FORMAT")] == [one]


async def test_of_entries_of_both_releases_the_newer_one_stays(
    opened: tuple[SharedStore, Overwrite], clock: Clock
) -> None:
    store, overwrite = opened
    clock.advance(100)
    older, newer = (entry("10.1000/FORMAT", fetched_at=clock() - age) for age in (50, 10))
    await overwrite(newer.key, write_version_2(newer))
    await store.put(older, unless_newer=True)
    await store.flush()
    assert await store.get(newer.key) == newer
    newest = entry("10.1000/FORMAT", fetched_at=clock())
    await store.put(newest, unless_newer=True)
    await store.flush()
    assert await store.get(newer.key) == newest


@pytest.mark.parametrize("age", [10, 50], ids=["newer", "older"])
async def test_a_verified_entry_is_as_new_as_any_other(
    opened: tuple[SharedStore, Overwrite], clock: Clock, age: int
) -> None:
    store, overwrite = opened
    clock.advance(100)
    of_other_release = entry("10.1000/FORMAT", fetched_at=clock() - 30)
    one = verified(entry("10.1000/FORMAT", fetched_at=clock() - age))
    await overwrite(one.key, write_version_2(of_other_release))
    await store.put(one, unless_newer=True)
    await store.flush()
    assert await store.get(one.key) == (one if age < 30 else of_other_release)


ENTRIES: Final = [entry(), missing(), entry(url="x" * 20_000), entry(ttl=0, grace=0)]
KINDS: Final = ["record", "no", "large", "stale"]


@pytest.mark.parametrize("one", ENTRIES, ids=KINDS)
def test_the_release_before_misses_a_verified_entry(one: Entry) -> None:
    assert read_version_2(one.key, pack(verified(one))) is None
    assert read_version_2(one.key, pack(proven(one))) is None


@pytest.mark.parametrize("one", ENTRIES, ids=KINDS)
def test_the_release_before_finds_no_damage_in_an_entry_of_this_one(one: Entry) -> None:
    assert read_version_2(one.key, pack(one)) in (one, None)
