"""`doi-proxy cache pull` from a running primary, and `cache export --since`."""

from __future__ import annotations

import asyncio
import re

import pytest
from msgspec.structs import replace

import app.features.follow.sqlite_change_pages
from app.cli.main import main
from app.features.bundles.delta import DeltaPurge, delta_line
from app.features.bundles.lines import to_line
from app.features.follow.change_feed import ChangeFeed
from app.features.follow.pull import PullLimits
from tests.cache.entries import entry
from tests.features.follow.command.primaries import (
    NAMES,
    NOW,
    Place,
    hostile,
    open_store,
    page,
    serving,
    write_registry,
)

pytestmark = pytest.mark.anyio


async def nothing(_: ChangeFeed, __: str) -> None:
    """What a primary with too many pages under way has."""


# --- A real primary ------------------------------------------------------------------------------------------------


async def test_a_replica_has_what_its_primary_has_and_then_its_changes_and_purges(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    write_registry(place.primary, "10.3000/R")
    async with serving(place.primary) as url:
        assert await place.pull(url) == 0
        assert re.search(r"new 3, .*registry 1; 1 pages, \d+ bytes", capsys.readouterr().out)
        assert await place.names(place.replica) == list(NAMES)
        assert await place.url(place.replica, "10.3000/R") == "http://r.example/"
        store = open_store(place.primary)
        await store.delete("10.1000/A")
        await store.delete("10.3000/R")
        await store.put(entry("10.1000/D", fetched_at=NOW))
        await store.close()
        assert await place.pull(url) == 0
        assert "new 1, kept 0, expired 0, refused 0, purged 2; 1 pages" in capsys.readouterr().out
        assert await place.names(place.replica) == ["10.1000/B", "10.1000/D", "10.2000/C"]
        assert await place.url(place.replica, "10.3000/R") is None


async def test_a_purge_of_a_prefix_or_of_everything_travels(place: Place) -> None:
    await place.put(place.primary, *NAMES)
    async with serving(place.primary) as url:
        await place.pull(url)
        await place.put(place.replica, "10.1000/OWN")
        for options, left in ((("--prefix", "10.1000"), ["10.2000/C"]), (("--all",), [])):
            purge = ("cache", "purge", "--store-url", f"sqlite:///{place.primary}", *options)
            assert await asyncio.to_thread(main, purge) == 0
            assert await place.pull(url) == 0
            assert await place.names(place.replica) == left


async def test_no_record_of_the_replica_that_is_newer_is_replaced_or_purged(place: Place) -> None:
    await place.put(place.replica, "10.1000/A", "10.1000/B", "10.2000/C", url="http://new.example/")
    old = to_line(entry("10.1000/A", fetched_at=NOW - 50))
    with hostile(
        lambda _: page(old, *(delta_line(DeltaPurge(one, NOW - 50)) for one in ("10.1000/B", "10.2000/", "")))
    ) as url:
        assert await place.pull(url) == 0
    for name in NAMES:
        assert await place.url(place.replica, name) == "http://new.example/"


async def test_many_pages_arrive_and_a_pull_with_a_limit_is_continued(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 10)
    names = [f"10.1000/{number:03}" for number in range(95)]
    await place.put(place.primary, *names)
    async with serving(place.primary) as url:
        assert await place.pull_within(url, PullLimits(bytes=1)) == 1
        assert "run the command again" in capsys.readouterr().err
        assert len(await place.names(place.replica)) == 10
        assert await place.pull(url) == 0
        assert "new 85" in capsys.readouterr().out
    assert await place.names(place.replica) == names


async def test_a_replica_with_a_new_store_and_a_primary_with_a_new_store_begin_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    async with serving(place.primary) as url:
        await place.pull(url)
        for file in place.folder.glob("replica.db*"):
            file.unlink()
        assert await place.pull(url) == 0
        assert await place.names(place.replica) == list(NAMES)
    for file in place.folder.glob("primary.db*"):
        file.unlink()
    await place.put(place.primary, "10.1000/NEW")
    capsys.readouterr()
    (state,) = await place.primaries()
    async with serving(place.primary) as url:
        await place.save_primary(replace(state, url=url))
        assert await place.pull(url) == 0
    assert "everything was pulled" in capsys.readouterr().err
    assert "10.1000/NEW" in await place.names(place.replica)


async def test_a_primary_that_is_busy_is_asked_again_and_a_wrong_token_or_store_is_explained(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    monkeypatch.setattr(ChangeFeed, "_read", nothing)
    async with serving(place.primary) as url:
        assert await place.pull_within(url, PullLimits(busy=0.0)) == 1
        assert "Other pages of changes are under way" in capsys.readouterr().err
        (place.folder / "token").write_text("another")
        assert await place.pull(url) == 1
        assert "the token is wrong" in capsys.readouterr().err


# --- Deltas in files ----------------------------------------------------------------------------------------------


async def test_a_delta_in_a_file_has_the_cursor_of_the_next_and_is_imported(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    write_registry(place.primary, "10.3000/R")
    primary, replica = (f"sqlite:///{path}" for path in (place.primary, place.replica))

    async def run(*arguments: str) -> str:
        assert await asyncio.to_thread(main, ["cache", *arguments]) == 0
        return capsys.readouterr().out

    file = str(place.folder / "delta.ndjson.gz")
    first = await run("export", "--store-url", primary, "--since", "start", "--output", file)
    assert first.startswith("4 changes exported; the next delta begins at --since c1.")
    counts = await run("import", "--mode", "sealed", "--store-url", replica, file)
    assert counts == "new 3, kept 0, expired 0, refused 0, registry 1; checksum right\n"
    store = open_store(place.primary)
    await store.delete("10.1000/A")
    await store.close()
    cursor = first.split()[-1]
    assert (await run("export", "--store-url", primary, "--since", cursor, "--output", file)).startswith("1 changes")
    await run("import", "--mode", "sealed", "--store-url", replica, file)
    assert await place.names(place.replica) == list(NAMES[1:])


@pytest.mark.parametrize(
    ("since", "message"),
    [("yesterday", "not a cursor"), ("c1.x", "not a cursor"), ("2001-01-01", "does not go back")],
)
async def test_a_cursor_that_cannot_be_used_is_explained(
    place: Place, since: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    arguments = ["cache", "export", "--store-url", f"sqlite:///{place.primary}", "--since", since]
    assert await asyncio.to_thread(main, arguments) > 0
    assert message in capsys.readouterr().err
