"""The store on a real cluster: where its keys are, and what a failover, a partition and a lost quorum cost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from doi_proxy.errors import BucketSettling, StoreError
from doi_proxy.features.valkey.layout import PARTITIONS, partitions_of_cluster
from doi_proxy.features.valkey.store import ValkeyStore
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.valkey.valkey_cluster import PRIMARIES, Cluster, running_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.valkey, pytest.mark.nightly]

#: A loaded test machine may take longer than a server on the same network; nothing here waits for it.
PATIENCE = 5.0
NAMES = [f"10.1000/{number}" for number in range(60)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that the test may break."""
    with running_cluster(tmp_path) as one:
        yield one


def test_each_partition_has_one_slot_and_the_slots_are_spread_evenly() -> None:
    layout = partitions_of_cluster()
    for partition in layout.partitions:
        keys = [partition.entry("10.1000/{182}"), partition.lease("x"), partition.bucket("upstream")]
        slots = {key_slot(key.encode()) for key in (*keys, partition.announcements, partition.purges)}
        assert slots == {partition.slot}
    parts = [partition.slot * PARTITIONS // 16_384 for partition in layout.partitions]
    assert parts == list(range(PARTITIONS))
    assert {layout.find(name).slot for name in NAMES} <= {partition.slot for partition in layout.partitions}


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
    lost = cluster.owner_of(partitions_of_cluster().find(NAMES[0]).slot)
    lost.kill()
    with pytest.raises(StoreError, match=rf"127.0.0.1:{lost.port} failed"):
        await store.get(NAMES[0])
    print(f"a replica took over after {cluster.wait_for_failover(lost):.1f} s")
    clock.advance(1.0)
    assert [await store.get(name) for name in NAMES] == [entry(name) for name in NAMES]
    assert await store.delete(NAMES[0])
    # The replica has counted no token yet.
    with pytest.raises(BucketSettling):
        await store.take("upstream", 1, 1)
    assert await store.lease(NAMES[0], "here", 20)
    assert (await store.changes(cursor)).keys == (NAMES[0],)
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
    # The first search after the failure asks the nodes that the lost one named.
    with contextlib.suppress(StoreError):
        await store.get(next(name for name in NAMES if partitions_of_cluster().find(name).slot < 16_384 // PRIMARIES))
    clock.advance(1.0)
    assert [await store.get(name) for name in NAMES] == [entry(name) for name in NAMES]
    await store.close()


async def test_a_primary_that_hangs_costs_its_own_partitions_alone(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=0.2)
    for name in NAMES:
        await store.put(entry(name))
    lost = cluster.owner_of(partitions_of_cluster().find(NAMES[0]).slot)
    others = [name for name in NAMES if cluster.owner_of(partitions_of_cluster().find(name).slot) is not lost]
    cursor = (await store.changes(None)).cursor
    lost.send(signal.SIGSTOP)
    with pytest.raises(StoreError):
        await store.get(NAMES[0])
    with pytest.raises(StoreError, match="a moment ago"):
        await store.get(NAMES[0])
    await store.delete(others[0])
    assert (await store.changes(cursor)).keys == (others[0],)
    lost.send(signal.SIGCONT)
    await store.close()


async def test_a_slot_that_moves_is_a_miss_at_worst_and_is_followed_afterwards(cluster: Cluster, clock: Clock) -> None:
    store = ValkeyStore(cluster.url, clock=clock, timeout=PATIENCE)
    await store.put(entry())
    slot = partitions_of_cluster().find("10.1000/182").slot
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
    owner = cluster.owner_of(partitions_of_cluster().find("10.1000/182").slot)
    for primary in cluster.primaries():
        if primary is not owner:
            primary.kill()
    cluster.wait_until_down(owner)
    clock.advance(1.0)
    with pytest.raises(StoreError, match=r"[Dd]own"):
        await store.get("10.1000/182")
    await store.close()
