"""What goes over a large memory has short turns of the event loop, in processor time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any, Final
from unittest.mock import patch

import pytest

from doi_proxy.cache import missed
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.missed import WORKS, _drop_lines
from doi_proxy.cache.store import EVERYTHING
from doi_proxy.cache.tiered import TieredStore
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW
from tests.clock import Clock
from tests.hostile.turns import REPEATS, is_short

pytestmark = pytest.mark.nightly

#: More of the smallest entries than the default of cache_memory_bytes has room for.
_ENTRIES: Final = 400_000
_FOUND: Final = Answer(ResponseCode.SUCCESS, b'[{"index":1,"type":"URL","data":"http://example.org/"}]')
#: The note of works, as long as it becomes.
_NOTE: Final = "\n".join(f"10.1000/{number}\t1.0\t2020\tA\t{'T' * 150}" for number in range(4_096)).encode()


def full_memory(clock: Clock) -> MemoryStore:
    """A memory tier with many entries."""
    memory = MemoryStore(1_000_000_000, clock=clock)
    for number in range(_ENTRIES):
        memory.keep(Entry(f"10.{1000 + number % 3}/{number}", _FOUND, NOW, NOW + 60, NOW + 120))
    return memory


@pytest.fixture
def large(clock: Clock) -> Iterator[MemoryStore]:
    """A memory tier with many entries. No collection of garbage falls into a turn of a test."""
    gc.disable()
    yield full_memory(clock)
    gc.enable()


def longest_turn(work: Coroutine[Any, Any, Any]) -> float:
    """The processor time of the longest turn of an event loop that runs this, in milliseconds."""
    turns = []
    run = asyncio.Handle._run

    def run_timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        turns.append((time.thread_time() - began) * 1000)

    with patch.object(asyncio.Handle, "_run", run_timed):
        asyncio.run(work)
    return max(turns)


def longest_keep(memory: MemoryStore, names: range) -> float:
    """The processor time of the longest addition of an entry, in milliseconds."""
    longest = 0.0
    for number in names:
        entry = Entry(f"10.1000/{number:09}", _FOUND, NOW, NOW + 60, NOW + 120)
        began = time.thread_time()
        memory.keep(entry)
        longest = max(longest, time.thread_time() - began)
    return longest * 1000


def test_a_memory_that_fills_and_is_full_adds_entries_in_short_turns(clock: Clock) -> None:
    size = Entry("10.1000/000000000", _FOUND, NOW, NOW + 60, NOW + 120).size
    gc.disable()
    turns = []
    for _ in range(REPEATS):
        memory = MemoryStore(_ENTRIES * size, clock=clock)
        # A table of this size, full, is built anew at most once in as many additions.
        turns.append(longest_keep(memory, range(3 * _ENTRIES)))
        assert (memory.entries, memory.bytes) == (_ENTRIES, _ENTRIES * size)
        if is_short(turns[-1]):
            break
    gc.enable()
    assert is_short(min(turns))


async def find_nothing(memory: MemoryStore) -> None:
    assert [found async for found in memory.scan("10.9999/")] == []


def test_a_scan_that_finds_nothing_has_short_turns(large: MemoryStore) -> None:
    assert any(is_short(longest_turn(find_nothing(large))) for _ in range(REPEATS))


async def drop(memory: MemoryStore, scope: str) -> None:
    async for _ in memory.drop_scope(scope):
        pass


def test_a_purge_of_a_prefix_in_front_of_a_store_has_short_turns(clock: Clock) -> None:
    memory = MemoryStore(1_000_000_000, clock=clock)
    cache = TieredStore(memory, MemoryStore(1_000_000, clock=clock), clock=clock, ceiling=86_400.0)

    def purge() -> float:
        for number in range(_ENTRIES):
            memory.keep(Entry(f"10.1000/{number}", _FOUND, NOW, NOW + 60, NOW + 120))
        turn = longest_turn(cache.clear_prefix("10.1000"))
        assert memory.entries == 0
        return turn

    gc.disable()
    assert any(is_short(purge()) for _ in range(REPEATS))
    gc.enable()


def test_a_clock_that_was_set_back_and_purges_of_a_prefix_and_of_everything_have_short_turns(clock: Clock) -> None:
    longest: list[tuple[float, ...]] = []
    gc.disable()
    for _ in range(REPEATS):
        memory = full_memory(clock)
        cache = TieredStore(memory, None, clock=clock, ceiling=86_400.0)
        clock.advance(-300)
        step = longest_turn(cache.notice_clock_step())
        assert memory.entries == _ENTRIES
        prefix = longest_turn(cache.clear_prefix("10.1000"))
        assert memory.entries == _ENTRIES - -(-_ENTRIES // 3)
        longest.append((step, prefix, longest_turn(drop(memory, EVERYTHING))))
        assert (memory.entries, memory.bytes) == (0, 0)
        if is_short(max(longest[-1])):
            break
    gc.enable()
    # What happens once on a busy machine is not what the code does: each has a short turn once.
    assert all(is_short(min(turns)) for turns in zip(*longest, strict=True)), longest


async def forget_one_name(cache: TieredStore, store: MemoryStore) -> None:
    await store.write_note(WORKS, _NOTE)
    await cache.forget_works(["10.1000/2"])


def test_a_purge_of_a_name_reads_the_works_in_a_thread(clock: Clock) -> None:
    store = MemoryStore(100_000_000, clock=clock)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), store, clock=clock, ceiling=86_400.0)
    threads = []

    def read(scopes: frozenset[str], note: bytes | None) -> bytes:
        threads.append(threading.current_thread())
        return _drop_lines(scopes, note)

    with patch.object(missed, "_drop_lines", read):
        asyncio.run(forget_one_name(cache, store))
    assert len(threads) == 1 and threading.main_thread() not in threads
    kept = asyncio.run(store.read_note(WORKS)) or b""
    assert len(kept.splitlines()) == len(_NOTE.splitlines()) - 1
