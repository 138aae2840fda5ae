"""A fleet of three: a primary, a sealed replica that follows it, and a second replica that follows the replica."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.cli.main import main
from app.features.registry.record import make_record
from app.features.registry.sqlite_table import RegistryTable
from app.features.registry.wire import to_row
from app.handle.answer import ResponseCode
from tests.cache.entries import entry, missing
from tests.features.follow.command.primaries import Place, open_store, serving

pytestmark = [pytest.mark.anyio, pytest.mark.process]

RECORDS = 2_500
TABLE = "doi,url,agency,date\n"


class Fleet:
    """Three stores, and the URLs of the proxies on the first two."""

    def __init__(self, place: Place, primary_url: str, replica_url: str, second_replica: Path) -> None:
        self._place = place
        self._primary_url = primary_url
        self._replica_url = replica_url
        self.primary = place.primary
        self.second_replica = second_replica

    async def follow(self) -> None:
        """Let the replica follow the primary, and then the second replica the first."""
        assert await self._place.pull(self._primary_url) == 0
        assert await self._place.pull(self._replica_url, store=f"sqlite:///{self.second_replica}") == 0

    async def url(self, name: str) -> str | None:
        """The URL that the second replica answers with."""
        return await self._place.url(self.second_replica, name)


def count_registry(path: Path) -> int:
    with RegistryTable(path, clock=time.time) as table:
        return table.count()


async def run(*arguments: str) -> None:
    assert await asyncio.to_thread(main, ["cache", *arguments]) == 0


async def test_what_the_primary_has_and_changes_reaches_the_second_replica(place: Place) -> None:
    names = [f"10.1000/{number:04}" for number in range(RECORDS)]
    await place.put(place.primary, *names)
    with RegistryTable(place.primary, clock=time.time) as table:
        pairs = [(f"10.3000/{number:04}", f"http://r.example/{number}") for number in range(RECORDS)]
        table.write([to_row(make_record(name, url, "Crossref", 5)) for name, url in pairs])
    # The stores exist before their proxies start.
    await place.put(place.replica)
    second_replica = place.folder / "second_replica.db"
    async with serving(place.primary) as primary_url, serving(place.replica) as replica_url:
        fleet = Fleet(place, primary_url, replica_url, second_replica)
        await fleet.follow()
        assert await place.names(second_replica) == names
        assert count_registry(second_replica) == RECORDS
        await check_purges(fleet)
        await check_a_name_that_was_absent(fleet)
        await check_registry_delta(fleet, place.folder / "later.csv")


async def check_purges(fleet: Fleet) -> None:
    await run("purge", "--store-url", f"sqlite:///{fleet.primary}", "10.1000/0007", "10.3000/0007")
    await fleet.follow()
    assert await fleet.url("10.1000/0007") is None
    assert await fleet.url("10.3000/0007") is None
    assert await fleet.url("10.1000/0008") == "http://here.example/"


async def check_a_name_that_was_absent(fleet: Fleet) -> None:
    known, unknown = "10.1000/0001", "10.1000/UNKNOWN"
    now = time.time()
    store = open_store(fleet.primary)
    for name in (known, unknown):
        absent = missing(name, fetched_at=now - 20)
        await store.put(replace(absent, fresh_until=now + 900, stale_until=now + 900))
    await store.close()
    await fleet.follow()
    # Only an upstream may say of a known name that it is gone.
    assert await fleet.url(known) == "http://here.example/"
    store = open_store(fleet.second_replica)
    found = await store.get(unknown)
    await store.close()
    assert found is not None and found.answer.code is ResponseCode.HANDLE_NOT_FOUND
    store = open_store(fleet.primary)
    for name in (known, unknown):
        await store.put(entry(name, "http://back.example/", fetched_at=now - 10))
    await store.close()
    await fleet.follow()
    assert [await fleet.url(name) for name in (known, unknown)] == ["http://back.example/"] * 2


async def check_registry_delta(fleet: Fleet, file: Path) -> None:
    rows = [
        ("10.3000/0001", "http://moved.example/", "2024-02-01"),
        ("10.3000/0002", "http://old.example/", "2023-01-01"),
        ("10.3000/NEW", "http://new.example/", "2024-03-01"),
    ]
    file.write_text(TABLE + "".join(f"{name},{url},Crossref,{date}\n" for name, url, date in rows))
    await run("import", "--store-url", f"sqlite:///{fleet.primary}", "--since", "2024-01-01", str(file))
    await fleet.follow()
    names = ("10.3000/0001", "10.3000/0002", "10.3000/NEW")
    assert [await fleet.url(name) for name in names] == [
        "http://moved.example/", "http://r.example/2", "http://new.example/",
    ]  # fmt: skip
