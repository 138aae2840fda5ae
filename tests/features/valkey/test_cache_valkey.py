"""The shared store with a real server: its clock, its outages, and our keys on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.store import COUNTER_IDLE, KEY_PREFIX, ValkeyStore
from doi_proxy.store.stored_entry import pack
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_server import start_valkey

pytestmark = [pytest.mark.anyio, pytest.mark.valkey]

#: A loaded test machine may take longer than a server on the same network; nothing here waits for it.
PATIENCE = 5.0


async def test_keys_and_times_on_the_server_stay_the_same(valkey_url: str, clock: Clock) -> None:
    """Every key has our prefix, and an end or a bound."""
    server: Redis = Redis.from_url(valkey_url.replace("valkey", "redis", 1))
    await server.flushdb()
    store = ValkeyStore(valkey_url, clock=clock, timeout=PATIENCE)
    await store.put(entry(ttl=60, grace=40), announce=True)
    await store.delete("10.1000/0")
    await store.spend("upstream")
    assert await server.get(f"{KEY_PREFIX}entry:10.1000/182") == pack(entry(ttl=60, grace=40))
    stream = await server.xrange(f"{KEY_PREFIX}feed") or []
    assert [fields for _, fields in stream] == [{b"key": b"10.1000/182"}, {b"key": b"10.1000/0"}]
    left = {str(name, "utf-8"): await server.pttl(name) for name in await server.keys() if isinstance(name, bytes)}
    await store.close()
    await server.aclose()
    assert left.pop("doi-proxy:1:feed") == -1  # bounded by number instead
    longest = {"entry:10.1000/182": 100, "purge:10.1000/0": 3_600, "counter:upstream": COUNTER_IDLE}
    assert {f"doi-proxy:1:{name}" for name in longest} == set(left)
    for name, seconds in longest.items():
        assert (seconds - 10) * 1000 < left[f"doi-proxy:1:{name}"] <= seconds * 1000, name


async def test_a_unix_socket_leads_to_the_server(tmp_path: Path, clock: Clock) -> None:
    server = start_valkey(unix_socket_path=tmp_path / "valkey.sock")
    store = ValkeyStore(f"valkey+unix://{tmp_path}/valkey.sock?db=1", clock=clock, timeout=PATIENCE)
    await store.put(entry())
    assert await store.get("10.1000/182") == entry()
    assert (await store.stats()).detail == f"Valkey server {tmp_path}/valkey.sock"
    server.terminate()
    with pytest.raises(StoreError, match=r"valkey\.sock failed: "):
        await store.get("10.1000/182")
    await store.close()


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_reader_of_names_to_forget_finds_that_a_server_lost_its_data(
    clock: Clock, valkey_url: str, is_used: bool
) -> None:
    server: Redis = Redis.from_url(valkey_url.replace("valkey", "redis", 1))
    store = ValkeyStore(valkey_url, clock=clock, timeout=PATIENCE)
    await store.delete("10.1000/BEFORE")
    cursor = (await store.changes(None)).cursor
    await server.flushdb()
    if is_used:
        await store.delete("10.1000/AFTER")
    heard = await store.changes(cursor)
    assert (heard.keys, heard.overrun, heard.data_lost) == (("10.1000/AFTER",) * is_used, False, True)
    await store.delete("10.1000/LATER")
    heard = await store.changes(heard.cursor)
    assert (heard.keys, heard.overrun, heard.data_lost) == (("10.1000/LATER",), False, False)
    await store.close()
    await server.aclose()


async def test_thousands_of_readers_at_once_all_get_the_record(valkey_url: str, clock: Clock) -> None:
    """Far more than a store has connections for."""
    store = ValkeyStore(valkey_url, clock=clock, timeout=PATIENCE)
    await store.put(entry())
    found = await asyncio.gather(*(store.get("10.1000/182") for _ in range(3_000)))
    assert found.count(entry()) == len(found)
    await store.close()
