"""A replica follows an import of changes at random, also if it is killed in between: both stores have the same."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

import app.features.follow.sqlite_change_pages
from app.assembly.stores import read_tables
from app.cache.memory import MemoryStore
from app.cache.tiered import TieredStore
from app.features.bundles.delta import DeltaEnd, delta_line, parse_cursor
from app.features.bundles.import_bundle import BundleImport, ImportBounds
from app.features.follow.pull import Body, Pull, PullLimits, PullReport
from app.features.follow.sqlite_change_pages import write_delta
from app.features.registry.record import make_record
from app.features.registry.sqlite_table import RegistryTable
from app.features.registry.wire import to_record, to_row
from app.features.sqlite.store import SqliteStore
from tests.cache.entries import NOW
from tests.clock import Clock

pytestmark = pytest.mark.anyio

NAMES: Final = 3_000
#: Every fiftieth name, at random.
CHANGED: Final = NAMES // 50
BATCH: Final = 500


class KilledError(Exception):
    """The process of the replica ends here."""


class Replica:
    """A store that pulls from the file of another one, and what it remembers after a kill."""

    def __init__(self, path: Path, primary: Path) -> None:
        self.path = path
        self.cursor = ""
        self.records = 0
        self._primary = primary
        self._clock = Clock(NOW)

    async def pull(self, *, killed_after: int = -1) -> PullReport:
        """Pull all changes. A kill comes after so many pages, when a page is applied and its cursor is not saved."""
        store = SqliteStore(self.path, clock=self._clock, max_bytes=10**7, tables=read_tables())
        cache = TieredStore(MemoryStore(10**6, clock=self._clock), store, clock=self._clock, ceiling=86_400.0)
        with RegistryTable(self.path, clock=self._clock) as table:
            work = BundleImport(cache, ImportBounds(60.0, 86_400.0, 86_400.0, sealed=True), self._clock, table)

            async def save(end: DeltaEnd) -> None:
                nonlocal killed_after
                killed_after -= 1
                if killed_after == 0:
                    raise KilledError
                self.cursor = end.next

            limits = PullLimits(10**9)
            job = Pull(self._fetch, work, save, sleep=_fail_to_sleep, chance=lambda: 0.5, limits=limits)
            try:
                return await job.run(self.cursor)
            finally:
                self.records += work.report.counts["registry"]
                await cache.close()

    async def _fetch(self, cursor: str) -> Body:
        file = BytesIO()
        place = parse_cursor(cursor) if cursor else None
        write_delta(self._primary, place, cursor, file, self._clock, whole=False)
        return Body(file.getvalue(), len(file.getvalue()))


async def _fail_to_sleep(seconds: float) -> None:
    raise AssertionError("a page failed")


def export(path: Path) -> list[bytes]:
    """The registry records of a store, in the order of their names."""
    with RegistryTable(path, clock=Clock(NOW)) as table:
        return [delta_line(to_record(row)) for page in table.pages() for row in page]


def write(path: Path, numbers: list[int], date: int) -> None:
    """Import registry records, in transactions as an import has them."""
    names = {number: f"10.2000/{number:05}" for number in numbers}
    rows = [
        to_row(make_record(name, f"http://r.example/{date}/{number}", "Crossref", date))
        for number, name in names.items()
    ]
    with RegistryTable(path, clock=Clock(NOW)) as table:
        for start in range(0, len(rows), BATCH):
            table.write(sorted(rows)[start : start + BATCH])


@pytest.fixture
async def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Replica]:
    """A primary, and a replica that has all of it. Pages are small."""
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 11)
    primary = tmp_path / "primary.db"
    write(primary, list(range(NAMES)), 1)
    replica = Replica(tmp_path / "replica.db", primary)
    assert (await replica.pull()).is_complete
    assert export(replica.path) == export(primary)
    replica.records = 0
    return primary, replica


async def test_a_replica_takes_what_changed_and_has_the_same_afterwards(stores: tuple[Path, Replica]) -> None:
    primary, replica = stores
    write(primary, sorted(random.Random(1).sample(range(NAMES), CHANGED)), 2)
    report = await replica.pull()
    assert (report.is_complete, report.began_again, replica.records) == (True, False, CHANGED)
    assert export(replica.path) == export(primary)


async def test_a_replica_that_is_killed_continues(stores: tuple[Path, Replica]) -> None:
    primary, replica = stores
    write(primary, sorted(random.Random(2).sample(range(NAMES), CHANGED)), 2)
    for pages in (1, 3):
        with pytest.raises(KilledError):
            await replica.pull(killed_after=pages)
        assert export(replica.path) != export(primary)
        # The primary goes on meanwhile, with names that the replica has taken already and with others.
        write(primary, list(range(0, NAMES, 60)), 3 + pages)
    with RegistryTable(primary, clock=Clock(NOW)) as table:
        table.forget(["10.2000/00000", "10.2000/00001"])
    report = await replica.pull()
    assert (report.is_complete, report.began_again) == (True, False)
    assert export(replica.path) == export(primary)


async def test_a_replica_of_a_replica_takes_no_more_than_what_changed(
    stores: tuple[Path, Replica], tmp_path: Path
) -> None:
    primary, replica = stores
    second = Replica(tmp_path / "second.db", replica.path)
    await second.pull()
    write(primary, sorted(random.Random(3).sample(range(NAMES), CHANGED)), 2)
    await replica.pull()
    second.records = 0
    assert (await second.pull()).is_complete
    assert second.records == CHANGED
    assert export(second.path) == export(primary)
