"""What outlives a process or has a bound, as numbers and bytes: the stores of yesterday are read by these."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path
from sys import getsizeof

import pytest
from msgspec.structs import replace

from doi_proxy.cache.entry import FOREVER, Entry, bound_times
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.features.bundles.bundle import BundleWriter, Refused, from_line, read_bundle
from doi_proxy.features.sqlite.file import mark_damaged
from doi_proxy.store.stored_entry import pack, unpack
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import fill, keys, opened

pytestmark = pytest.mark.anyio

LINE = (
    b'{"bundle":1,"handle":"10.1/A","responseCode":100,"values":[],"fetched":"2023-11-14T22:13:20Z",'
    b'"fresh_until":"2023-11-14T22:14:20Z","stale_until":"2023-11-14T22:14:20Z"}\n'
)


# --- Formats ---------------------------------------------------------------------------------------------------------


def test_the_line_and_the_checksum_of_a_bundle_stay_the_same() -> None:
    file = BytesIO()
    writer = BundleWriter(file)
    writer.add(missing("10.1/A"))
    writer.finish()
    digest = b"1b11c5c5f6bd5133b5ff3435d62c3eb5f7dfff5e937c3dc7448e9365972210e8"
    assert file.getvalue() == LINE + b'{"checksum":"sha256:' + digest + b'","lines":1}\n'


def test_a_record_of_the_first_second_and_of_the_last_is_stored() -> None:
    long = Entry("10.1/A", entry().answer, 0.0, 0.0, 253_402_300_799.0)
    assert unpack("10.1/A", pack(long)) == long
    assert FOREVER == 253_402_300_799.0
    assert from_line(b'{"handle":"10.1/a","responseCode":100}').stale_until == 253_402_300_799.0


def test_a_line_of_a_bundle_has_at_most_512_kibibytes() -> None:
    line = b'{"handle":"10.1/a","responseCode":100'
    longest = line.ljust(2**19 - 2) + b"}\n"
    assert not any(isinstance(item, Refused) for item in read_bundle(BytesIO(longest)))
    (refused, _) = read_bundle(BytesIO(line.ljust(2**19 - 1) + b"}\n"))
    assert isinstance(refused, Refused)


# --- Memory ----------------------------------------------------------------------------------------------------------


def test_the_size_of_an_entry_stays_when_its_key_is_encoded() -> None:
    one = entry("10.1000/\N{GREEK SMALL LETTER ALPHA}" * 9)
    size = one.size
    assert size >= getsizeof(one.key) + getsizeof(one.answer.values) + 340
    one.key.encode()
    assert one.size == size


def test_a_clock_may_be_60_seconds_ahead() -> None:
    ahead, far = entry(fetched_at=NOW + 60), entry(fetched_at=NOW + 60.5)
    assert bound_times(ahead, NOW, 1e9).fetched_at == NOW + 60
    assert bound_times(far, NOW, 1e9).fetched_at == 0.0


def test_10000_answers_that_ended_leave_memory_in_one_step(clock: Clock) -> None:
    memory = MemoryStore(100_000_000, clock=clock)
    for name in range(10_001):
        memory.keep(missing(f"10.1/{name}"))
    assert memory.drop_expired() == 0
    clock.advance(60)
    assert memory.drop_expired() == 10_000
    assert (memory.drop_expired(), memory.drop_expired()) == (1, 0)
    assert memory.entries == 0


def test_an_absent_prefix_stays_in_memory_and_holds_up_no_other_answer(clock: Clock) -> None:
    memory = MemoryStore(100_000_000, clock=clock)
    prefix = replace(missing("10.5555"), stale_until=NOW + 10**6)
    for one in (prefix, missing()):
        memory.keep(one)
    clock.advance(60)
    assert (memory.drop_expired(), memory.peek(prefix.key)) == (1, prefix)


# --- SQLite ----------------------------------------------------------------------------------------------------------


async def test_a_damaged_file_is_marked_and_set_aside_by_the_time(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    for found in ("store.sqlite3.corrupt-20231114T221320Z", "store.sqlite3.corrupt-20231114T221320Z-1"):
        await fill(path, clock)
        mark_damaged(path)
        mark = tmp_path / "store.sqlite3.damaged"
        assert mark.exists()
        async with opened(path, clock) as store:
            assert await keys(store) == []
        assert (tmp_path / found).exists()
        assert not mark.exists()


async def test_the_time_of_use_is_written_once_an_hour(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"

    async def last_used(store_age: float) -> float:
        clock.now = NOW + store_age
        async with opened(path, clock) as store:
            await store.get("10.1000/00000")
        with closing(sqlite3.connect(path)) as connection:
            (when,) = connection.execute("SELECT last_used FROM entries").fetchone()
            return float(when) - NOW

    await fill(path, clock, 1)
    assert [await last_used(age) for age in (0, 3_599, 3_600, 3_601)] == [0, 0, 3_600, 3_600]
