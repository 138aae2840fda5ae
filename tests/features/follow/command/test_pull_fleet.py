"""A fleet of three: a parent, a sealed child that follows it, and a grandchild that follows the child."""

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
from tests.features.follow.command.parents import Place, open_store, serving

pytestmark = [pytest.mark.anyio, pytest.mark.process]

RECORDS = 2_500
TABLE = "doi,url,agency,date\n"


class Fleet:
    """Three stores, and the URLs of the proxies on the first two."""

    def __init__(self, place: Place, parent_url: str, child_url: str, grandchild: Path) -> None:
        self._place = place
        self._parent_url = parent_url
        self._child_url = child_url
        self.parent = place.parent
        self.grandchild = grandchild

    async def follow(self) -> None:
        """Let the child follow the parent, and then the grandchild the child."""
        assert await self._place.pull(self._parent_url) == 0
        assert await self._place.pull(self._child_url, store=f"sqlite:///{self.grandchild}") == 0

    async def url(self, name: str) -> str | None:
        """The URL that the grandchild answers with."""
        return await self._place.url(self.grandchild, name)


def count_registry(path: Path) -> int:
    with RegistryTable(path, clock=time.time) as table:
        return table.count()


async def run(*arguments: str) -> None:
    assert await asyncio.to_thread(main, ["cache", *arguments]) == 0


async def test_what_the_parent_has_and_changes_reaches_the_grandchild(place: Place) -> None:
    names = [f"10.1000/{number:04}" for number in range(RECORDS)]
    await place.put(place.parent, *names)
    with RegistryTable(place.parent, clock=time.time) as table:
        pairs = [(f"10.3000/{number:04}", f"http://r.example/{number}") for number in range(RECORDS)]
        table.write([to_row(make_record(name, url, "Crossref", 5)) for name, url in pairs])
    # The stores exist before their proxies start.
    await place.put(place.child)
    grandchild = place.folder / "grandchild.db"
    async with serving(place.parent) as parent_url, serving(place.child) as child_url:
        fleet = Fleet(place, parent_url, child_url, grandchild)
        await fleet.follow()
        assert await place.names(grandchild) == names
        assert count_registry(grandchild) == RECORDS
        await check_purges(fleet)
        await check_a_name_that_was_absent(fleet)
        await check_registry_delta(fleet, place.folder / "later.csv")


async def check_purges(fleet: Fleet) -> None:
    await run("purge", "--store-url", f"sqlite:///{fleet.parent}", "10.1000/0007", "10.3000/0007")
    await fleet.follow()
    assert await fleet.url("10.1000/0007") is None
    assert await fleet.url("10.3000/0007") is None
    assert await fleet.url("10.1000/0008") == "http://here.example/"


async def check_a_name_that_was_absent(fleet: Fleet) -> None:
    known, unknown = "10.1000/0001", "10.1000/UNKNOWN"
    now = time.time()
    store = open_store(fleet.parent)
    for name in (known, unknown):
        absent = missing(name, fetched_at=now - 20)
        await store.put(replace(absent, fresh_until=now + 900, stale_until=now + 900))
    await store.close()
    await fleet.follow()
    # Only an upstream may say of a known name that it is gone.
    assert await fleet.url(known) == "http://here.example/"
    store = open_store(fleet.grandchild)
    found = await store.get(unknown)
    await store.close()
    assert found is not None and found.answer.code is ResponseCode.HANDLE_NOT_FOUND
    store = open_store(fleet.parent)
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
    await run("import", "--store-url", f"sqlite:///{fleet.parent}", "--since", "2024-01-01", str(file))
    await fleet.follow()
    names = ("10.3000/0001", "10.3000/0002", "10.3000/NEW")
    assert [await fleet.url(name) for name in names] == [
        "http://moved.example/", "http://r.example/2", "http://new.example/",
    ]  # fmt: skip
