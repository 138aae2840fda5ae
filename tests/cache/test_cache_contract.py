"""The contract of every store: memory, SQLite, Valkey and its model, Valkey behind Sentinels, and a Valkey cluster.

A fact takes a row, which opens the stores of several processes. `advance` lets time pass for all of them. The clock of
a server goes on during a test, so a fact has a margin of TEST_TIME wherever a server counts the seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from msgspec.structs import replace

from doi_proxy.cache.coordination import MAX_IDLE
from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.purges import PURGE_MEMORY
from doi_proxy.cache.store import SharedStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.rationing.token_bucket import MAX_BACK_OFF, Bucket, back_off, drop_gains, take_token
from doi_proxy.store.stored_entry import pack
from doi_proxy.upstream.budget import LocalBucket
from tests.cache.entries import NOW, entry, known, missing, proven, verified
from tests.cache.store_rows import Row
from tests.clock import Clock
from tests.table import table

pytestmark = pytest.mark.anyio

KEY: Final = "10.1000/182"
#: The longest that a test may take, in seconds of a server's clock.
TEST_TIME: Final = 20.0
#: Slow enough that the time a test takes changes no answer: a token takes 100 seconds.
RATE, BURST = 0.01, 5.0
#: Seconds of a lease, and by how much time goes on. Each lease ends more than TEST_TIME before or after a step.
LEASE, STEP = 200.0, 90.0
CEILING: Final = 86_400.0
TWO_DAYS: Final = 172_800.0

SERVERS: Final = [
    pytest.param("valkey", marks=pytest.mark.valkey),
    *(pytest.param(name, marks=[pytest.mark.valkey, pytest.mark.nightly]) for name in ("sentinel", "cluster")),
]
#: Stores that keep entries as bytes, where a disk, a person or another program can damage them.
OF_BYTES: Final = ["sqlite", "model", *SERVERS]
every_store = pytest.mark.parametrize("row", ["memory", *OF_BYTES], indirect=True)
every_store_of_bytes = pytest.mark.parametrize("row", OF_BYTES, indirect=True)


async def keys(store: SharedStore, prefix: str = "") -> list[str]:
    return sorted([found.key async for found in store.scan(prefix)])


# --- Entries ---------------------------------------------------------------------------------------------------------

NAMES_OF_KINDS: Final = "10.26321/Á.GUTIÉRREZ.ZARZA.02.2018.03%:*?[]\\ 💡"
KINDS: Final = [
    entry("10.1000/A"),
    entry("10.1000/STALE", ttl=-10),
    entry(NAMES_OF_KINDS),
    entry("10.1000/LONG" + "X" * 8_000),
    entry("10.1000/LARGE", url="http://example.org/" + "x" * 300_000),
    missing("10.1000/MISSING"),
    verified(entry("10.1000/VERIFIED")),
    verified(missing("10.1000/VERIFIED.MISSING")),
    proven(entry("10.1000/PROVEN")),
    proven(entry("10.1000/PROVEN.EMPTY"), b""),
    proven(missing("10.1000/PROVEN.MISSING"), b"x" * 65_536),
]


@every_store
async def test_an_entry_of_any_kind_is_here_at_once_and_for_every_process_after_a_flush(row: Row) -> None:
    here, there = await row.open(), await row.open()
    for one in KINDS:
        assert await here.get(one.key) is None
        await here.put(one)
        assert await here.get(one.key) == one
    await here.flush()
    for one in KINDS:
        assert await here.get(one.key) == await there.get(one.key) == one
    assert {found.key: found async for found in there.scan()} == {one.key: one for one in KINDS}
    stats = await there.stats()
    assert (stats.entries, stats.healthy, stats.bytes > 0, stats.detail != "") == (len(KINDS), True, True, True)


@every_store
async def test_the_later_of_two_puts_counts(row: Row) -> None:
    store, new = await row.open(), entry(url="http://example.org/new")
    await store.put(entry(url="http://example.org/old"))
    await store.flush()
    await store.put(new)
    assert await store.get(KEY) == new
    await store.flush()
    assert await store.get(KEY) == new
    assert await keys(store) == [KEY]


@every_store
async def test_an_entry_is_not_returned_after_its_hard_expiry(row: Row) -> None:
    store = await row.open()
    await store.put(entry(ttl=100, grace=200))
    await store.put(entry("10.1000/OVER", ttl=-200, grace=100))
    assert await keys(store) == [KEY]
    # The clocks of the processes alone: that of a server can be behind.
    row.clock.advance(299)
    assert await store.get(KEY) is not None
    row.clock.advance(1)
    assert [await store.get(key) for key in (KEY, "10.1000/OVER")] == [None, None]
    assert await keys(store) == []


@every_store
async def test_a_deleted_entry_is_gone_here_at_once_and_for_every_process_after_a_flush(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await here.put(entry())
    await here.flush()
    assert await there.delete(KEY) is True
    assert await there.get(KEY) is None
    await there.flush()
    assert await here.get(KEY) is await there.get(KEY) is None
    assert await here.delete(KEY) is False
    await here.put(entry())
    await here.flush()
    assert await there.get(KEY) == entry()


@every_store
async def test_a_scan_returns_only_the_entries_with_the_prefix(row: Row) -> None:
    store = await row.open()
    for key in ("10.1000/2", "10.1000/1", "10.10001/1", "10.1000.10/1", NAMES_OF_KINDS):
        await store.put(entry(key))
    assert await keys(store) == ["10.1000.10/1", "10.1000/1", "10.1000/2", "10.10001/1", NAMES_OF_KINDS]
    assert await keys(store, "10.1000/") == ["10.1000/1", "10.1000/2"]
    assert await keys(store, NAMES_OF_KINDS[:-3]) == [NAMES_OF_KINDS]


@every_store
async def test_a_scan_returns_every_entry_of_many_pages(row: Row) -> None:
    store, wanted = await row.open(), {f"10.1000/{n:04}" for n in range(1_234)}
    for key in sorted(wanted):
        await store.put(entry(key))
    assert set(await keys(store)) == wanted


@every_store
@pytest.mark.parametrize("written", [True, False], ids=["written", "waiting"])
async def test_no_unverified_entry_replaces_a_fresh_verified_one(row: Row, written: bool) -> None:
    here, there = await row.open(), await row.open()
    for number, kind in enumerate((verified, proven)):
        for is_missing in (False, True):
            key, at = f"10.1000/{number}{is_missing}", row.clock()
            proof = kind(missing(key, fetched_at=at) if is_missing else entry(key, ttl=60, fetched_at=at))
            cursor = (await there.changes(None)).cursor
            await here.put(proof)
            if written:
                await here.flush()
            lies = [entry(key, url="http://evil.example/", fetched_at=at + 5), missing(key, fetched_at=at + 5)]
            for writer, lie in zip((there, here) if written else (here, here), lies, strict=True):
                await writer.put(lie, sent_at=at, announce=False)
                await writer.put(lie, unless_newer=True)
                await writer.flush()
            assert await here.get(key) == await there.get(key) == proof
            # A process that has the lie in memory drops it.
            assert not written or key in (await there.changes(cursor)).keys
            # Another verified entry replaces it, and so does any entry after its soft expiry or a purge.
            await there.put(verified(entry(key, ttl=30, fetched_at=at)))
            await there.flush()
            assert await here.get(key) == verified(entry(key, ttl=30, fetched_at=at))
            row.advance(30)
            await there.put(lies[0])
            await there.flush()
            assert await here.get(key) == lies[0]
            await here.put(verified(entry(key, fetched_at=at + 30)))
            await here.delete(key)
            await here.put(lies[0])
            await here.flush()
            assert await there.get(key) == lies[0]


IMPORTED: Final = entry(url="http://example.org/imported")


@every_store
@pytest.mark.parametrize("written", [True, False], ids=["written", "waiting"])
async def test_an_import_replaces_no_usable_record_that_was_fetched_later(row: Row, written: bool) -> None:
    here, there = await row.open(), await row.open()
    known = {"later": (entry(fetched_at=NOW + MAX_SKEW), False), "at the same time": (entry(), True)}
    if written:
        known["expired"] = (entry(fetched_at=NOW + 1, ttl=-2, grace=0), True)
    for reason, (stored, is_replaced) in known.items():
        writer = there if written else here
        await writer.put(stored)
        if written:
            await writer.flush()
        await here.put(IMPORTED, unless_newer=True)
        await here.flush()
        assert await there.get(KEY) == (IMPORTED if is_replaced else stored), reason
        await here.delete(KEY)
        await here.put(IMPORTED, unless_newer=True)
        await here.flush()
        assert await there.get(KEY) == IMPORTED, "after a purge"


@every_store
async def test_an_import_that_waits_does_not_replace_a_record_that_another_process_wrote(row: Row) -> None:
    here, there = await row.open(), await row.open()
    new = entry(fetched_at=NOW + 1)
    await here.put(IMPORTED, unless_newer=True)
    await there.put(new)
    await there.flush()
    await here.flush()
    assert await there.get(KEY) == new


@every_store_of_bytes
async def test_an_import_replaces_a_record_from_the_future_and_a_damaged_one(row: Row) -> None:
    store = await row.open()
    for damage in (False, True):
        await store.put(entry(fetched_at=NOW + MAX_SKEW + (0 if damage else 1)))
        await store.flush()
        if damage:
            row.overwrite({KEY: b"\0"})
        await store.put(IMPORTED, unless_newer=True)
        await store.flush()
        assert await store.get(KEY) == IMPORTED


@every_store
async def test_a_note_is_kept_for_all_processes(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert await here.read_note("note") is None
    for data in (b"first", b"\x00\xff"):
        await here.write_note("note", data)
    assert await there.read_note("note") == b"\x00\xff"
    assert await there.read_note("other") is None


@every_store_of_bytes
async def test_what_was_put_survives_a_close(row: Row) -> None:
    store = await row.open()
    await store.put(entry())
    await store.write_note("note", b"note")
    assert await store.lease(KEY, "here", LEASE)
    await row.close()
    store = await row.open()
    assert (await store.get(KEY), await store.read_note("note")) == (entry(), b"note")
    assert not await store.lease(KEY, "there", LEASE)


# --- Purges and announcements ----------------------------------------------------------------------------------------


@every_store
@pytest.mark.parametrize("scope", [KEY, "10.1000/", ""])
async def test_the_answer_to_a_question_sent_before_a_purge_is_not_stored(row: Row, scope: str) -> None:
    here, there = await row.open(), await row.open()
    sent_at = row.clock()
    row.advance(100)
    await here.delete(scope)
    await here.flush()
    row.advance(100)
    await there.put(entry(), sent_at=sent_at)
    await there.put(entry("10.10000/OTHER"), sent_at=sent_at)
    await there.flush()
    assert await here.get(KEY) is None
    assert (await here.get("10.10000/OTHER") is None) == (scope == "")
    await there.put(entry(), sent_at=row.clock())
    await there.flush()
    assert await here.get(KEY) == entry()


@every_store_of_bytes
async def test_a_purge_is_forgotten_after_an_hour(row: Row) -> None:
    store, sent_at = await row.open(), row.clock() - 100
    await store.delete(KEY)
    await store.flush()
    row.advance(PURGE_MEMORY)
    await store.put(entry(), sent_at=sent_at)
    await store.flush()
    assert await store.get(KEY) == entry()


@every_store
async def test_a_purge_from_before_the_clock_was_set_back_refuses_nothing(row: Row) -> None:
    store = await row.open()
    await store.delete(KEY)
    await store.flush()
    row.advance(-TWO_DAYS)
    await store.put(entry(), sent_at=row.clock() - 1)
    await store.flush()
    assert await store.get(KEY) == entry()


@every_store
async def test_an_entry_that_waits_to_be_written_does_not_survive_a_purge_by_another_process(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await there.put(entry(), sent_at=row.clock())
    row.advance(0.1)
    await here.delete(KEY)
    await here.flush()
    await there.flush()
    assert await here.get(KEY) is None


@every_store
async def test_announced_puts_and_all_deletes_reach_other_processes(row: Row) -> None:
    here, there = await row.open(), await row.open()
    first = (await there.changes(None)).cursor
    await here.delete("10.1000/GONE")
    await here.flush()
    heard = await there.changes(first)
    assert (heard.keys, heard.overrun) == (("10.1000/GONE",), False)
    heard = await there.changes(None)
    assert (heard.keys, heard.overrun) == ((), False)
    await here.put(entry("10.1000/QUIET"))
    await here.put(entry("10.1000/LOUD"), announce=True)
    # A later quiet put of the same name does not take the announcement back.
    await here.put(entry("10.1000/LOUD"))
    assert await here.delete("10.1000/QUIET", announce=False) is True
    assert await here.delete("10.1000/QUIET", announce=False) is False
    await here.delete("10.1000/GONE")
    await here.announce("10.1000/")
    await here.flush()
    heard = await there.changes(heard.cursor)
    assert set(heard.keys) == {"10.1000/LOUD", "10.1000/GONE", "10.1000/"}
    assert not heard.overrun
    assert (await there.changes(heard.cursor)).keys == ()


@every_store
async def test_every_kept_announcement_is_heard_and_who_missed_more_hears_of_an_overrun(row: Row) -> None:
    here, there = await row.open(), await row.open()
    await here.delete("10.1000/FIRST")
    await here.flush()
    cursor = (await there.changes(None)).cursor
    for n in range(row.kept):
        await here.delete(f"10.1000/{n}")
    await here.flush()
    heard = await there.changes(cursor)
    assert (len(heard.keys), heard.overrun) == (row.kept, False)
    for n in range(row.more):
        await here.delete(f"10.1000/LATER{n}")
    await here.flush()
    assert (await there.changes(cursor)).overrun
    later = await there.changes(heard.cursor)
    assert (len(later.keys), later.overrun) == (row.more, False)


# --- Leases ----------------------------------------------------------------------------------------------------------


@every_store
async def test_leases_have_one_owner_until_they_end_or_are_released(row: Row) -> None:
    """Two processes do at random what a model does: a lease is an owner and an end."""
    stores, dice = {"here": await row.open(), "there": await row.open()}, random.Random(1)
    held: dict[str, tuple[str, float]] = {}
    for _ in range(300):
        action = dice.choice(["lease", "lease", "release", "renew", "advance", "advance", "set back"])
        owner, key, now = dice.choice(["here", "there"]), dice.choice(["10.1000/1", KEY]), row.clock()
        known, ends = held.get(key, ("", now))
        if action == "lease":
            # A lease that ends later than two new ones would was taken before the clock was set back.
            is_free = not now < ends <= now + 2 * LEASE
            assert await stores[owner].lease(key, owner, LEASE) == is_free
            held[key] = (owner, now + LEASE) if is_free else (known, ends)
        elif action == "release":
            await stores[owner].release(key, owner)
            if known == owner:
                del held[key]
        elif action == "renew" and now < ends:
            await stores[owner].renew(key, owner, LEASE)
            held[key] = (known, now + LEASE if known == owner else ends)
        elif action == "advance":
            row.advance(STEP)
        elif action == "set back" and all(now < end for _, end in held.values()):
            # A lease that has ended is gone on a server, and begins again elsewhere.
            row.advance(-STEP)


@every_store
async def test_a_lease_that_its_owner_renews_for_no_time_ends(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert await here.lease(KEY, "here", LEASE)
    await there.renew(KEY, "there", 0.0)
    assert not await there.lease(KEY, "there", LEASE)
    await here.renew(KEY, "here", 0.0)
    # Valkey lets it end after a millisecond.
    async with asyncio.timeout(TEST_TIME):
        while not await there.lease(KEY, "there", LEASE):
            row.advance(0.001)
    await here.renew(KEY, "here", 0.0)
    assert not await here.lease(KEY, "here", LEASE)


@every_store
async def test_the_entry_of_a_released_lease_is_visible_to_the_next_owner(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert await here.lease(KEY, "here", LEASE)
    await here.put(entry())
    await here.release(KEY, "here")
    assert await there.lease(KEY, "there", LEASE)
    assert await there.get(KEY) == entry()


@every_store
async def test_of_fifty_who_want_a_lease_one_gets_it_and_of_a_hundred_who_want_a_token_twenty(row: Row) -> None:
    stores = [await row.open() for _ in range(5)]
    leases = await asyncio.gather(*(stores[n % 5].lease(KEY, f"owner {n}", LEASE) for n in range(50)))
    assert leases.count(True) == 1
    row.settle_bucket("shared")
    waits = await asyncio.gather(*(stores[n % 5].take("shared", 0.000_001, 20) for n in range(100)))
    assert waits.count(0.0) == 20


@every_store_of_bytes
async def test_a_lease_without_an_end_or_with_a_late_one_is_nobodys(row: Row) -> None:
    here, there = await row.open(), await row.open()
    for seconds in (None, 1e9, TWO_DAYS):
        assert await there.lease(KEY, "there", LEASE)
        row.set_lease(KEY, seconds)
        assert await here.lease(KEY, "here", LEASE)
        assert not await there.lease(KEY, "there", LEASE)
        await here.release(KEY, "here")


# --- Token buckets ---------------------------------------------------------------------------------------------------

#: What a caller does with a bucket: take (tokens to leave, and tokens to take if not one), take first (as a new process
#: does), back off, or wait.
Script = list[tuple[Any, ...]]
TAKE: Final = ("take", 0.0)
TAKE_ALL: Final = [TAKE] * 6
FIRST: Final = ("first", 0.0)
SCRIPTS: Final[dict[str, Script]] = {
    "full, and gains its rate": [*TAKE_ALL, ("wait", 250), *TAKE_ALL, ("wait", MAX_IDLE - 100), *TAKE_ALL],
    "leaves tokens": [("take", 3.0)] * 3 + TAKE_ALL,
    "gives several or none": [("take", 0.0, 3), ("take", 0.0, 3), ("take", 1.0, 2), ("take", 0.0, 2)],
    "leaves what it can": [("take", 100.0, 4), *TAKE_ALL],
    "empty after a back-off": [TAKE, ("back off", 30), TAKE, ("wait", 30), *TAKE_ALL, ("wait", 230), *TAKE_ALL],
    "never used before a back-off": [("back off", 30), TAKE, ("wait", 30), *TAKE_ALL],
    "asked in a back-off": [("back off", 1_000), ("wait", 900), TAKE, ("wait", 100), *TAKE_ALL],
    "the longer back-off": [("back off", 1_000), ("back off", 5), TAKE],
    "the longest back-off": [("back off", 1e13), TAKE, ("wait", MAX_BACK_OFF), TAKE],
    "a clock set back": [*TAKE_ALL, ("wait", -TWO_DAYS), TAKE, ("wait", 130), *TAKE_ALL],
    "gains nothing before a first take": [*TAKE_ALL, ("wait", 250), FIRST, TAKE, ("wait", 130), *TAKE_ALL],
    "has what it had at a first take": [TAKE, ("wait", 30), FIRST, ("wait", 30), FIRST, *TAKE_ALL],
    "first takes around a back-off": [("back off", 30), FIRST, ("wait", 60), FIRST, ("wait", 230), *TAKE_ALL],
    "a first take after a clock set back": [*TAKE_ALL, ("wait", -TWO_DAYS), FIRST, ("wait", 130), *TAKE_ALL],
    "a back-off before a clock set back": [("back off", 1_000), ("wait", -TWO_DAYS), TAKE],
}


def write_script(dice: random.Random) -> Script:
    # No sum of these is a whole number of tokens, which a slow test could cross.
    steps = [TAKE, ("take", 2.0), ("wait", 30.0), ("wait", 130.0), ("wait", 230.0), ("back off", 5.0)]
    return [*dice.choices(steps, [4, 2, 1, 1, 1, 1], k=60)]


ALL_SCRIPTS: Final = [*SCRIPTS.values(), *(write_script(random.Random(seed)) for seed in range(5))]


def about(seconds: float) -> Any:
    return pytest.approx(seconds, abs=TEST_TIME)


@dataclass(frozen=True)
class SharedBucket:
    """A bucket that several processes use, one at a time."""

    name: str
    stores: Sequence[SharedStore]
    dice: random.Random

    async def take(self, leaving: float, count: int = 1, *, is_first: bool = False) -> float:
        return await self.dice.choice(self.stores).take(self.name, RATE, BURST, leaving, count, is_first=is_first)

    async def back_off(self, seconds: float) -> None:
        await self.dice.choice(self.stores).back_off(self.name, seconds)


async def run_script(script: Script, bucket: SharedBucket | LocalBucket, advance: Callable[[float], None]) -> None:
    """Do what the arithmetic of a bucket does, and compare the answers."""
    model, now = None, NOW
    for action, number, *more in script:
        if action == "take":
            model, expected = take_token(model, now, RATE, BURST, number, *more)
            wait = await bucket.take(number, *more)
            assert (wait == 0.0, wait) == (expected == 0.0, about(expected))
        elif action == "first":
            assert isinstance(bucket, SharedBucket)
            model, expected = take_token(drop_gains(model, now), now, RATE, BURST, number)
            wait = await bucket.take(number, is_first=True)
            assert (wait == 0.0, wait) == (expected == 0.0, about(expected))
        elif action == "back off":
            model = back_off(model, now, number)
            await bucket.back_off(number)
        else:
            now += number
            advance(number)


@every_store
async def test_a_bucket_answers_as_the_arithmetic_does(row: Row) -> None:
    stores, dice = [await row.open(), await row.open()], random.Random(1)
    for number, script in enumerate(ALL_SCRIPTS):
        row.settle_bucket(f"bucket {number}")
        await run_script(script, SharedBucket(f"bucket {number}", stores, dice), row.advance)


async def test_the_bucket_of_one_process_answers_as_the_arithmetic_does(clock: Clock) -> None:
    for script in ALL_SCRIPTS:
        # It gives one token at a time.
        if all(len(step) == 2 and step != FIRST for step in script):
            await run_script(script, LocalBucket(RATE, BURST, clock), clock.advance)


@every_store
async def test_a_bucket_without_a_rate_never_fills_again(row: Row) -> None:
    store = await row.open()
    for name in ("bucket", "other"):
        row.settle_bucket(name)
    assert await store.take("bucket", 0, 1) == 0.0
    assert await store.take("bucket", 0, 1) == float("inf")
    assert await store.take("other", 0, 1) == 0.0


ODD: Final = [
    Bucket(5.0, 0.0, 1e13),
    Bucket(1e300, 0.0, 0.0),
    Bucket(-1e300, 0.0, 0.0),
    Bucket(0.0, 1e13, 0.0),
    Bucket(0.0, -1e300, 0.0),
    Bucket(float("inf"), float("-inf"), float("inf")),
    Bucket(0.0, float("inf"), float("inf")),
]


@every_store_of_bytes
async def test_a_bucket_of_odd_numbers_counts_as_the_arithmetic_says_and_one_of_texts_is_full(row: Row) -> None:
    store = await row.open()
    for number, odd in enumerate(ODD):
        row.settle_bucket(f"bucket {number}")
        await store.take(f"bucket {number}", RATE, BURST)
        row.set_bucket(f"bucket {number}", tokens=odd.tokens, at=odd.at, blocked_until=odd.blocked_until)
        expected = take_token(odd, row.clock(), RATE, BURST)[1]
        assert await store.take(f"bucket {number}", RATE, BURST) == about(expected), odd
        row.set_bucket(f"bucket {number}", tokens="text", at="text", blocked_until="text")
        waits = [await store.take(f"bucket {number}", RATE, BURST) for _ in range(6)]
        assert waits == [0.0] * 5 + [about(100)], odd


# --- Damage, and keys of other kinds ---------------------------------------------------------------------------------


def mutate(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """The data of an entry, damaged in one of the ways that a disk, a person or another program has."""
    place = dice.randrange(len(data))
    ways: list[Callable[[], bytes]] = [
        lambda: other,
        lambda: data[:place],
        lambda: data + other[:place],
        lambda: data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :],
        lambda: data[:place] + dice.randbytes(4) + data[place + 4 :],
        lambda: data[:34] + other[34:],
        lambda: other[:34] + data[34:],
        lambda: data[:4] + other[4:],
        lambda: b"",
        lambda: dice.randbytes(60),
        lambda: pack(replace(entry(), fresh_until=dice.choice([float("inf"), 1e13, float("nan")]))),
    ]  # fmt: skip
    return dice.choice(ways)()


async def read(store: SharedStore, key: str) -> Entry | None:
    try:
        return await store.get(key)
    except StoreError:
        return None


@every_store_of_bytes
async def test_no_damaged_entry_is_served(row: Row) -> None:
    dice, right = random.Random(1), {known(n).key: known(n) for n in range(300)}
    store, served = await row.open(), 0
    for one in right.values():
        await store.put(one)
    await store.flush()
    for _ in range(10):
        others = [pack(right[key]) for key in dice.choices(list(right), k=len(right))]
        row.overwrite(
            {key: mutate(dice, pack(wanted), other) for (key, wanted), other in zip(right.items(), others, strict=True)}
        )
        for key, wanted in right.items():
            answer = await read(store, key)
            assert answer in (None, wanted)
            served += answer is not None
        assert {found.key: found async for found in store.scan()}.items() <= right.items()
    assert served < 300
    assert (await store.stats()).healthy


@every_store_of_bytes
@table("damaged", [pack(known(2)), pack(known(1))[:-1], b"pickled"], ids=["of another name", "cut", "foreign"])
async def test_a_damaged_entry_is_one_missing_entry_until_it_is_put_again(row: Row, damaged: bytes) -> None:
    store = await row.open()
    for number in (1, 2):
        await store.put(known(number))
    await store.flush()
    for heal in (False, True):
        row.overwrite({known(1).key: damaged})
        with pytest.raises(DamagedEntry):
            await store.get(known(1).key)
        assert await keys(store) == [known(2).key]
        assert await store.get(known(2).key) == known(2)
        assert (await store.stats()).healthy
        if not heal:
            assert await store.delete(known(1).key) is True
            await store.flush()
        await store.put(known(1))
        await store.flush()
        assert await store.get(known(1).key) == known(1)


@every_store_of_bytes
async def test_a_key_that_is_not_unicode_is_an_error_and_not_an_outage(row: Row) -> None:
    store = await row.open()
    await store.put(entry())
    for call in (store.put(entry("10.1000/\ud800")), store.get("10.1000/\ud800"), store.delete("10.1000/\ud800")):
        with pytest.raises(StoreError):
            await call
    await store.flush()
    assert await store.get(KEY) == entry()
    assert (await store.stats()).healthy


@every_store_of_bytes
async def test_what_another_process_has_stored_meanwhile_is_found_before_a_refusal(row: Row) -> None:
    here, there = await row.open(), await row.open()
    cache = TieredStore(MemoryStore(1_000_000, clock=row.clock), here, clock=row.clock, ceiling=CEILING)
    assert await cache.get(KEY) is None
    assert await cache.get_late(KEY) is False
    await there.put(entry())
    await there.flush()
    assert await cache.get_late(KEY) is True
    assert cache.peek(KEY) == entry()


@every_store_of_bytes
async def test_after_a_clock_two_days_ahead_no_record_is_fresh_for_longer_than_the_ceiling(row: Row) -> None:
    def tier(store: SharedStore) -> TieredStore:
        return TieredStore(MemoryStore(1_000_000, clock=row.clock), store, clock=row.clock, ceiling=CEILING)

    store = await row.open()
    row.advance(TWO_DAYS)
    written = tier(store)
    await written.put(entry(fetched_at=row.clock()))
    await written.put(missing(fetched_at=row.clock()))
    await written.flush()
    row.advance(-TWO_DAYS)
    cache = tier(store)
    found = await cache.get(KEY)
    assert found is not None
    assert (found.is_fresh(row.clock()), found.is_usable(row.clock())) == (False, True)
    absent = await cache.get("10.1000/MISSING")
    assert absent is not None and not absent.is_usable(row.clock())
    renewed = entry(fetched_at=row.clock())
    assert await cache.put_newer(renewed) is True
    assert await tier(store).get(KEY) == renewed
