"""The contract of every store: memory, SQLite, Valkey and its model, Valkey behind Sentinels, and a Valkey cluster.

A fact takes a row, which opens the stores of several processes. `advance` lets time pass for all of them. The clock of
a server goes on during a test, so a fact has a margin of TEST_TIME wherever a server counts the seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from doi_proxy.cache.entry import MAX_SKEW, Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import PURGE_MEMORY, CountingStore, Store
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.store.stored_entry import pack
from tests.cache.entries import NOW, entry, known, missing, proven, verified
from tests.cache.store_rows import Row
from tests.table import table

pytestmark = pytest.mark.anyio

KEY: Final = "10.1000/182"
#: The longest that a test may take, in seconds of a server's clock.
TEST_TIME: Final = 20.0
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


async def keys(store: Store, prefix: str = "") -> list[str]:
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
    await row.close()
    store = await row.open()
    assert (await store.get(KEY), await store.read_note("note")) == (entry(), b"note")


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


# --- Queries that are counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["model", *SERVERS], indirect=True)
async def test_the_queries_of_all_instances_are_counted_by_name(row: Row) -> None:
    here, there = await row.open(), await row.open()
    assert isinstance(here, CountingStore) and isinstance(there, CountingStore)
    assert [await store.spend("queries") for store in (here, there, there, here)] == [1, 2, 3, 4]
    assert await there.spend("other") == 1


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


async def read(store: Store, key: str) -> Entry | None:
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
async def test_after_a_clock_two_days_ahead_no_record_is_fresh_for_longer_than_the_ceiling(row: Row) -> None:
    def tier(store: Store) -> TieredStore:
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
