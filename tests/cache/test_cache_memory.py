"""The memory tier: bounded in bytes, least recently used first."""

from __future__ import annotations

import tracemalloc

import pytest

from doi_proxy.cache.entry import OVERHEAD, Entry
from doi_proxy.cache.memory import SPAN, Doorkeeper, MemoryStore
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW, entry
from tests.clock import Clock

SIZE = entry("10.1000/0").size


def test_the_least_recently_used_entry_leaves_first(clock: Clock) -> None:
    memory = MemoryStore(3 * SIZE, clock=clock)
    for n in range(3):
        memory.keep(entry(f"10.1000/{n}"))
    memory.peek("10.1000/0")
    memory.keep(entry("10.1000/3"))
    assert [memory.peek(f"10.1000/{n}") is not None for n in range(4)] == [True, False, True, True]
    assert (memory.entries, memory.bytes, memory.evictions) == (3, 3 * SIZE, 1)


def test_a_large_memory_has_several_tables_and_one_limit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doi_proxy.cache.memory._TABLE_BYTES", 2**18)
    most = 20 * 2**15
    memory = MemoryStore(most, clock=clock)
    large = [entry(f"10.1000/{n}", url="http://example.org/" + "x" * 3 * 2**15) for n in range(40)]
    for each in large:
        memory.keep(each)
        assert memory.peek(each.key) is each  # the new entry is never the one that leaves
        assert memory.bytes <= most
    for n in range(5_000):
        memory.keep(entry(f"10.1000/{n}"))
    assert most - SIZE - 10 < memory.bytes <= most
    assert memory.entries == len(set(memory.unsorted_keys()))


def test_an_entry_of_the_store_evicts_others_only_if_it_is_seen_again(clock: Clock) -> None:
    memory = MemoryStore(2 * SIZE, clock=clock)
    for n in range(9):
        memory.admit(entry(f"10.1000/{n}"))
    assert sorted(memory.unsorted_keys()) == ["10.1000/0", "10.1000/1"]
    memory.admit(entry("10.1000/8"))
    assert sorted(memory.unsorted_keys()) == ["10.1000/1", "10.1000/8"]


def test_a_doorkeeper_remembers_the_last_names() -> None:
    doorkeeper = Doorkeeper()
    assert not doorkeeper.has_seen("10.1000/first")
    assert doorkeeper.has_seen("10.1000/first")
    taken_for_seen = sum(doorkeeper.has_seen(f"10.1000/{n}") for n in range(SPAN - 1))
    assert taken_for_seen < SPAN / 8
    assert doorkeeper.has_seen("10.1000/first")
    for n in range(3 * SPAN):
        doorkeeper.has_seen(f"10.1001/{n}")
    assert not doorkeeper.has_seen("10.1000/first")


def test_an_entry_larger_than_the_tier_is_dropped_with_the_entry_it_replaces(clock: Clock) -> None:
    memory = MemoryStore(2 * SIZE, clock=clock)
    memory.keep(entry("10.1000/0"))
    memory.keep(entry("10.1000/0", url="http://example.org/" + 2 * SIZE * "x"))
    assert memory.peek("10.1000/0") is None
    assert memory.bytes == 0


def test_a_tier_of_zero_bytes_has_no_entries(clock: Clock) -> None:
    memory = MemoryStore(0, clock=clock)
    memory.keep(entry())
    assert memory.entries == 0


@pytest.mark.anyio
async def test_dropping_or_clearing_entries_frees_their_bytes(clock: Clock) -> None:
    memory = MemoryStore(10 * SIZE, clock=clock)
    memory.keep(entry("10.1000/0"))
    memory.keep(entry("10.1000/1"))
    assert memory.drop("10.1000/0") is True
    assert memory.drop("10.1000/0") is False
    assert memory.bytes == SIZE
    await memory.close()
    assert (memory.entries, memory.bytes) == (0, 0)


def test_peek_gives_stale_entries_too(clock: Clock) -> None:
    memory = MemoryStore(10 * SIZE, clock=clock)
    memory.keep(entry(ttl=1, grace=1))
    clock.advance(10)
    assert memory.peek("10.1000/182") is not None


@pytest.mark.parametrize("length", [300, 1_200])
def test_the_bytes_counted_are_the_bytes_used(length: int, clock: Clock) -> None:
    number = 1_000
    memory = MemoryStore(1_000_000_000, clock=clock)
    tracemalloc.start()
    for n in range(number):
        memory.keep(made(n, length))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used <= memory.bytes * 1.05
    assert used / number <= 1.6 * length + 500
    assert memory.bytes / number <= length + 100 + OVERHEAD


def made(n: int, length: int) -> Entry:
    ends = NOW + n + 86_400.5
    return Entry(f"10.1000/{n:08}", Answer(ResponseCode.SUCCESS, bytes(length)), NOW + n, ends, ends + 100.5)


@pytest.mark.anyio
async def test_announcements_of_long_names_are_bounded_in_bytes_and_the_oldest_are_missed(clock: Clock) -> None:
    memory = MemoryStore(SIZE, clock=clock)
    names = [f"10.1000/{number:04}".ljust(8_192, "x") for number in range(1_000)]
    cursor = (await memory.changes(None)).cursor
    for name in names[:900]:
        await memory.announce(name)
    recent = (await memory.changes(None)).cursor
    for name in names[900:]:
        await memory.announce(name)
    assert (await memory.changes(cursor)).overrun
    assert (await memory.changes(recent)).keys == tuple(names[900:])
