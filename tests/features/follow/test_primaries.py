"""What a store remembers about its primaries."""

from __future__ import annotations

import asyncio
import builtins

import pytest

from app.cache.memory import MemoryStore
from app.cache.tiered import TieredStore
from app.features.follow.primaries import MAX_PRIMARIES, PrimaryState, read_primaries, save_primary
from tests.clock import Clock

pytestmark = pytest.mark.anyio

FIRST = PrimaryState("https://one.example", "c1", 5.0)
OTHER = PrimaryState("https://two.example", "c2")


class SlowNotes(MemoryStore):
    """A store that lets another task run between two commands."""

    async def write_note(self, name: str, data: builtins.bytes) -> None:
        await asyncio.sleep(0)
        await super().write_note(name, data)


def tier(store: MemoryStore, clock: Clock) -> TieredStore:
    return TieredStore(MemoryStore(0, clock=clock), store, clock=clock, ceiling=86_400.0)


async def test_the_state_of_each_primary_is_saved_for_all_processes() -> None:
    clock = Clock()
    store = MemoryStore(1_000_000, clock=clock)
    here, there = tier(store, clock), tier(store, clock)
    assert await read_primaries(here) == ()
    for state in (PrimaryState(FIRST.url, "c0"), OTHER, FIRST):
        await save_primary(here, state)
    assert await read_primaries(there) == (FIRST, OTHER)


async def test_two_pulls_at_the_same_moment_do_not_forget_each_other() -> None:
    clock = Clock()
    store = SlowNotes(1_000_000, clock=clock)
    await asyncio.gather(save_primary(tier(store, clock), FIRST), save_primary(tier(store, clock), OTHER))
    assert sorted(await read_primaries(tier(store, clock)), key=lambda one: one.url) == [FIRST, OTHER]


async def test_a_store_remembers_a_bounded_number_of_primaries() -> None:
    cache = tier(MemoryStore(1_000_000, clock=(clock := Clock())), clock)
    for number in range(MAX_PRIMARIES + 2):
        await save_primary(cache, PrimaryState(f"https://{number}.example", "c1"))
    assert len(await read_primaries(cache)) == MAX_PRIMARIES
