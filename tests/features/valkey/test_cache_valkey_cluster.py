"""The store on a real cluster: where its keys are, and what a failover, a partition and a lost quorum cost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.store import KEY_PREFIX, ValkeyStore
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_cluster import Cluster, running_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

#: A loaded test machine may take longer than a server on the same network; nothing here waits for it.
PATIENCE = 5.0
NAMES = [f"10.1000/{number}" for number in range(60)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that the test may break."""
    with running_cluster(tmp_path) as one:
        yield one


def slot_of(name: str) -> int:
    """The hash slot of an entry."""
    return key_slot(f"{KEY_PREFIX}entry:{name}".encode())


async def test_a_plain_url_that_meets_a_cluster_names_the_right_one(session_cluster: Cluster, clock: Clock) -> None:
    port = session_cluster.servers[0].port
    store = ValkeyStore(f"valkey://127.0.0.1:{port}", clock=clock, timeout=PATIENCE)
    with pytest.raises(StoreError, match=rf"use valkey\+cluster://127.0.0.1:{port} as the store URL"):
        await store.put(entry())
    await store.close()


async def test_a_cluster_url_that_meets_a_plain_server_says_so(valkey_url: str, clock: Clock) -> None:
    store = ValkeyStore(valkey_url.replace("valkey:", "valkey+cluster:"), clock=clock, timeout=PATIENCE)
    with pytest.raises(StoreError, match="cluster support disabled"):
        await store.get("10.1000/182")
    assert not (await store.stats()).healthy
    await store.close()


async def test_a_killed_primary_is_replaced_and_loses_no_entry(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=PATIENCE)
    for name in NAMES:
        await store.put(entry(name), announce=True)
    cursor = (await store.changes(None)).cursor
    cluster.wait_until_copied()
    lost = cluster.owner_of(slot_of(NAMES[0]))
    lost.kill()
    with pytest.raises(StoreError, match="failed: "):
        await store.get(NAMES[0])
    print(f"a replica took over after {cluster.wait_for_failover(lost):.1f} s")
    clock.advance(1.0)
    assert [await store.get(name) for name in NAMES] == [entry(name) for name in NAMES]
    assert await store.delete(NAMES[0])
    assert await store.spend("upstream") == 1
    heard = await store.changes(cursor)
    assert NAMES[0] in heard.keys or heard.overrun
    assert sorted([found.key async for found in store.scan()]) == sorted(NAMES[1:])
    await store.close()


async def test_the_only_node_that_the_url_names_can_be_lost(cluster: Cluster, clock: Clock) -> None:
    named = cluster.servers[0]
    store = ValkeyStore(f"valkey+cluster://127.0.0.1:{named.port}", clock=clock, timeout=PATIENCE)
    for name in NAMES:
        await store.put(entry(name))
    cluster.wait_until_copied()
    named.kill()
    cluster.wait_for_failover(named)
    # A search asks the nodes that the lost one named.
    assert [await store.get(name) for name in NAMES] == [entry(name) for name in NAMES]
    await store.close()


async def test_a_primary_that_hangs_is_an_outage_until_it_answers(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=0.2)
    for name in NAMES:
        await store.put(entry(name))
    lost = cluster.owner_of(slot_of(NAMES[0]))
    lost.send(signal.SIGSTOP)
    with pytest.raises(StoreError):
        await store.get(NAMES[0])
    with pytest.raises(StoreError, match="a moment ago"):
        await store.get(NAMES[0])
    lost.send(signal.SIGCONT)
    clock.advance(1.0)
    assert [await store.get(name) for name in NAMES] == [entry(name) for name in NAMES]
    await store.close()


async def test_a_slot_that_moves_is_a_miss_at_worst_and_is_followed_afterwards(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=PATIENCE)
    await store.put(entry())
    slot = slot_of("10.1000/182")
    source = cluster.owner_of(slot)
    target = next(primary for primary in cluster.primaries() if primary is not source)
    source_id, target_id = (one.client.execute_command("CLUSTER MYID").decode() for one in (source, target))
    target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
    source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
    keys = source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
    source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

    async def read() -> list[bool]:
        """Whether each of 20 reads is right. None is wrong."""
        found = list[bool]()
        for _ in range(20):
            with contextlib.suppress(StoreError):
                assert await store.get("10.1000/182") == entry()
                found.append(True)
        return found

    # The source answers ASK. redis-py sends ASKING on one connection, and the command perhaps on another.
    right = sum(map(len, await asyncio.gather(*(read() for _ in range(16)))))
    print(f"of 320 reads of a slot that moves, {right} are right and {320 - right} are misses")
    for one in (target, source):
        one.client.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
    clock.advance(1.0)
    # The source answers MOVED, and the store has not looked the primaries up since.
    assert sum(map(len, await asyncio.gather(*(read() for _ in range(16))))) == 320
    await store.put(entry(url="http://example.org/new"), announce=True)
    assert await store.get("10.1000/182") == entry(url="http://example.org/new")
    await store.close()


async def test_a_cluster_without_a_quorum_fails_with_one_message(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=PATIENCE)
    await store.put(entry())
    owner = cluster.owner_of(slot_of("10.1000/182"))
    for primary in cluster.primaries():
        if primary is not owner:
            primary.kill()
    cluster.wait_until_down(owner)
    clock.advance(1.0)
    # The node that is left says that the cluster is down, or a search finds another one that was killed.
    with pytest.raises(StoreError, match=r"^The store cluster .* failed: .*([Dd]own|connecting to)"):
        await store.get("10.1000/182")
    await store.close()
