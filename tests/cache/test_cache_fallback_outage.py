"""One log line when a store goes down, and one when it is up again."""

from __future__ import annotations

import pytest

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.fallback import Outage
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import DamagedEntry
from tests.cache.entries import entry
from tests.clock import Clock

QUIET = 5.0


def test_an_outage_is_two_lines_with_its_duration(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(clock, QUIET)
    outage.record_success("get")
    for _ in range(60):
        outage.record_failure("get", "Connection refused.")
        outage.record_failure("put", "Connection refused.")
        clock.advance(1)
    outage.record_success("get")  # the last failure was a second ago
    clock.advance(4)
    outage.record_success("scan")  # this one never failed
    outage.record_success("get")
    outage.record_success("put")
    assert [record.message for record in caplog.records] == [
        "The store is down: get failed; this process continues with its memory. Connection refused."
        " Do not restart it before the store works: what is in memory alone would be lost.",
        "The store is up again after 64 seconds.",
    ]


def test_a_store_that_fails_now_and_then_is_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(clock, QUIET)
    for _ in range(100):
        outage.record_failure("lease", "database is locked.")
        clock.advance(1)
        outage.record_success("lease")
        clock.advance(1)
    assert len(caplog.records) == 1


def test_a_clock_that_was_set_back_does_not_prolong_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(clock, QUIET)
    outage.record_failure("get", "Connection refused.")
    clock.advance(-172_800)
    outage.record_success("get")
    assert len(caplog.records) == 2


@pytest.mark.anyio
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
