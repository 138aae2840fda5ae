"""Works in the store: they outlive a process, within their TTL and until a purge."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.missed import WORKS
from doi_proxy.features.admin.purge import Selection, purge
from doi_proxy.features.feature import Core
from doi_proxy.features.metadata.work import KeptWork, Work, read_works, write_works
from doi_proxy.features.metadata.works import TTL, Works
from doi_proxy.upstream.source import Priority
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.features.metadata.agency import TITLE, item, put_prefix
from tests.parts import command_context

WORK: Final = Work(TITLE, ("Einstein",), 1905)
pytestmark = pytest.mark.anyio


@asynccontextmanager
async def core_with(folder: Path, upstream: FakeUpstream) -> AsyncIterator[Core]:
    store = {"store_url": f"sqlite:///{folder}/store.sqlite3", "upstream_contact": "mailto:a@example.org"}
    context = command_context(Settings(**store, upstream_url=upstream.url))
    async with context.stores.open_as_service() as core:
        yield core


async def test_a_purge_of_a_name_drops_its_work_alone(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream, core_with(tmp_path, upstream) as core:
        await core.cache.change_note(WORKS, lambda _: b"10.1/A\t1\n10.1/AB\t1")
        await purge(core.cache, Selection(HandleName("10.1/a")))
        assert await core.cache.read_note(WORKS) == b"10.1/AB\t1"


def test_works_are_read_as_they_were_written() -> None:
    works = {
        "10.5555/Ä\u2028B": KeptWork(
            2.5, Work("Ein „Titel“", ("Müller", "O'Neil"), 1905, "b", "J", "1", "2", "3", "4", "book", is_group=True)
        ),
        "10.5555/C": KeptWork(1.25, Work(TITLE)),
    }
    note = write_works(works, None, lambda key, at: True)
    assert dict(read_works(note)) == works
    assert [key for key, _ in read_works(note)] == list(works), "the newest is first"
    assert write_works(works, note, lambda key, at: at > 2) == note.split(b"\n")[0]


@pytest.mark.parametrize(
    "note",
    [
        None,
        b"",
        b"\n",
        b"a\t1\t\t\tx",
        b'["a",1]',
        b'["a","b",{"title":"x"}]',
        b'["a",1,{}]',
        b'["\xff",1,{"title":"x"}]',
    ],
)
def test_a_damaged_note_has_no_works(note: bytes | None) -> None:
    assert list(read_works(note)) == []


def test_the_note_is_bounded() -> None:
    small = {f"10.5555/{number}": KeptWork(float(number), Work("A title")) for number in range(6_000)}
    kept = dict(read_works(write_works(small, None, lambda key, at: True)))
    assert len(kept) == 4_096 and "10.5555/5999" in kept and "10.5555/0" not in kept
    authors = ("A family name of many letters",) * 8
    large = {f"10.5555/{number}": KeptWork(float(number), Work("e" * 400, authors, 1)) for number in range(4_000)}
    note = write_works(large, None, lambda key, at: True)
    assert 1_000_000 < len(note) <= 1024 * 1024 and max(map(len, note.split(b"\n"))) <= 600
    assert len(dict(read_works(note))["10.5555/3999"].work.authors) == 3, "what is too long for a line loses authors"
    assert write_works({"10.5555/a": KeptWork(1.0, Work("é" * 500))}, None, lambda key, at: True) == b""


class Agency:
    """Answers each fetch."""

    def __init__(self) -> None:
        self.fetches = 0
        self.free = asyncio.Event()
        self.free.set()

    async def fetch(self, url: str) -> bytes:
        self.fetches += 1
        await self.free.wait()
        return item()


@asynccontextmanager
async def opened(folder: Path, agency: Agency, clock: Clock) -> AsyncIterator[tuple[Core, Works, list[str]]]:
    """The works of a process on the store of a folder, and the results that they count."""
    async with FakeUpstream() as upstream, core_with(folder, upstream) as core:
        put_prefix(upstream, "https://agency.example")
        for name in ("a", *range(12)):
            upstream.put(f"10.5555/{name}", url="https://publisher.example/")
        results: list[str] = []
        works = Works(core.destinations, agency.fetch, core.cache, results.append, clock)
        await works.load()
        yield core, works, results
        await works.stop()
        await works.save()


async def found(works: Works) -> Work | None:
    return await works.find(HandleName("10.5555/a"), None, 60.0)


async def test_a_work_outlives_its_process_for_a_week(tmp_path: Path) -> None:
    agency, clock = Agency(), Clock(time.time())
    for results in (["work"], []):
        async with opened(tmp_path, agency, clock) as (_, works, counted):
            assert (await found(works), counted) == (WORK, results)
            assert works.recall(HandleName("10.5555/A")) == WORK
    clock.advance(TTL)
    async with opened(tmp_path, agency, clock) as (_, works, counted):
        assert works.recall(HandleName("10.5555/a")) is None
        assert (await found(works), counted, agency.fetches) == (WORK, ["work"], 2)


async def test_works_that_the_store_did_not_take_are_saved_later(tmp_path: Path) -> None:
    agency = Agency()
    async with opened(tmp_path, agency, Clock(time.time())) as (core, works, _):
        assert await found(works) == WORK
        with closing(sqlite3.connect(tmp_path / "store.sqlite3", isolation_level=None)) as other:
            other.execute("CREATE TRIGGER refuses BEFORE INSERT ON notes BEGIN SELECT RAISE(ABORT, 'no'); END")
            await works.save()
            assert await core.cache.read_note(WORKS) is None
            other.execute("DROP TRIGGER refuses")
        await works.save()
        assert TITLE.encode() in (await core.cache.read_note(WORKS) or b"")


async def test_a_person_has_a_place_whatever_lists_fetch(tmp_path: Path) -> None:
    agency = Agency()
    async with opened(tmp_path, agency, Clock(time.time())) as (_, works, _):
        agency.free.clear()
        names = [HandleName(f"10.5555/{number}") for number in range(12)]
        lists = [asyncio.create_task(works.find(name, None, None, Priority.BULK)) for name in names]
        await asyncio.sleep(1.0)
        assert agency.fetches == 3
        person = asyncio.create_task(works.find(HandleName("10.5555/a"), None, None))
        await asyncio.sleep(1.0)
        assert agency.fetches == 4
        agency.free.set()
        assert [await task for task in (person, *lists)] == [WORK] * 13
    assert agency.fetches == 13


@pytest.mark.parametrize("scope", ["10.5555/A", "10.5555/", ""])
async def test_a_purge_deletes_a_work_in_memory_and_in_the_store(tmp_path: Path, scope: str) -> None:
    agency, clock = Agency(), Clock(time.time())
    async with opened(tmp_path, agency, clock) as (core, works, _):
        assert await found(works) == WORK
        await works.save()
        assert TITLE.encode() in (await core.cache.read_note(WORKS) or b"")
        await core.cache.begin_purge(scope)
        assert works.recall(HandleName("10.5555/a")) is None
        assert await core.cache.read_note(WORKS) == b""
        await works.save()
    async with opened(tmp_path, agency, clock) as (core, works, _):
        assert works.recall(HandleName("10.5555/a")) is None
        clock.advance(1.0)
        assert (await found(works), agency.fetches) == (WORK, 2)
