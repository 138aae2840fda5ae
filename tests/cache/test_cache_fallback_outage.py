"""One log line when a store goes down, and one when it is up again."""

from __future__ import annotations

import asyncio
import time

import pytest

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import Outage, TieredStore
from doi_proxy.errors import DamagedEntry
from tests.cache.entries import entry
from tests.clock import Clock

pytestmark = pytest.mark.anyio
QUIET = 5.0


async def test_an_outage_is_two_lines_with_its_duration(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(Clock(), time.monotonic, QUIET)
    outage.record_success("get")
    for _ in range(60):
        outage.record_failure("get", "Connection refused.")
        outage.record_failure("put", "Connection refused.")
        await asyncio.sleep(1)
    outage.record_success("get")  # the last failure was a second ago
    await asyncio.sleep(4)
    outage.record_success("scan")  # this one never failed
    outage.record_success("get")
    outage.record_success("put")
    assert [record.message for record in caplog.records] == [
        "The store is down: get failed; this process continues with its memory. Connection refused."
        " Do not restart doi-proxy before the store works: what is in memory alone would be lost.",
        "The store is up again after 64 seconds.",
    ]


async def test_a_store_that_fails_now_and_then_is_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(Clock(), time.monotonic, QUIET)
    for _ in range(100):
        outage.record_failure("get", "database is locked.")
        await asyncio.sleep(1)
        outage.record_success("get")
        await asyncio.sleep(1)
    assert len(caplog.records) == 1


async def test_a_clock_that_is_set_neither_ends_an_outage_nor_prolongs_it(caplog: pytest.LogCaptureFixture) -> None:
    for step in (172_800, -172_800):
        caplog.clear()
        clock = Clock()
        outage = Outage(clock, time.monotonic, QUIET)
        outage.record_failure("get", "Connection refused.")
        clock.advance(step)
        outage.record_success("get")
        assert len(caplog.records) == 1
        await asyncio.sleep(QUIET)
        outage.record_success("get")
        assert caplog.messages[1:] == ["The store is up again after 5 seconds."]


async def test_a_damaged_entry_is_an_outage_of_writes_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Damaged(MemoryStore):
        async def put(self, *_: object, **__: object) -> None:
            raise DamagedEntry("The key has data of another program.")

        async def get(self, key: str) -> Entry | None:
            raise DamagedEntry(f"The entry of {key} is damaged.")

    clock = Clock()
    cache = TieredStore(MemoryStore(0, clock=clock), Damaged(1_000, clock=clock), clock=clock, ceiling=1e9)
    assert await cache.get("10.1000/1") is None
    assert caplog.records == []
    for _ in range(3):
        await cache.put(entry())
    assert [record.message.partition(";")[0] for record in caplog.records] == ["The store is down: put failed"]
    assert cache.counters.store_errors == 4
