"""Children of each kind of store: what arrives, what the store remembers, and a child that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

import app.features.follow.sqlite_change_pages
from app.assembly.settings import Settings
from app.cli.main import main
from app.features.command_store import open_store as open_cache
from app.features.follow.change_feed import ChangeFeed, FeedPage
from app.features.follow.parents import ParentState, read_parents
from tests.cache.entries import entry
from tests.features.follow.command.parents import NAMES, NOW, Place, serving, write_registry
from tests.features.valkey.valkey_server import start_valkey

pytestmark = [pytest.mark.anyio, pytest.mark.valkey]

ROOT: Final = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def valkey() -> Iterator[Any]:
    """A Valkey server."""
    server = start_valkey()
    yield server
    server.stop()


def empty(server: Any) -> str:
    """Empty a Valkey server. Returns its URL."""
    with Redis(port=server.port) as client:
        client.flushall()
    return f"valkey://127.0.0.1:{server.port}/0"


@pytest.fixture(params=["sqlite", "valkey"])
def child(request: pytest.FixtureRequest, place: Place) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{place.child}"
    return empty(request.getfixturevalue("valkey"))


async def names_of(url: str) -> list[str]:
    async with open_cache(Settings(store_url=url, mode="sealed")) as cache:
        return sorted([one.key async for one in cache.scan()])


async def parents_of(url: str) -> tuple[ParentState, ...]:
    async with open_cache(Settings(store_url=url, mode="sealed")) as cache:
        return await read_parents(cache)


async def purge(path: Path, *selection: str) -> None:
    assert await asyncio.to_thread(main, ["cache", "purge", "--store-url", f"sqlite:///{path}", *selection]) == 0


@pytest.mark.process
async def test_records_and_purges_arrive_and_registry_records_only_in_a_file(
    place: Place, child: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted([*NAMES, "10.1000/D", "10.3000/E"])
    await place.put(place.parent, *names)
    write_registry(place.parent, "10.4000/R", "10.4000/S")
    async with serving(place.parent) as url:
        assert await place.pull(url, store=child) == 0
        shown = capsys.readouterr()
        assert await names_of(child) == names
        left_out = "2 records of registration agencies were left out: only a store sqlite:///path has them"
        assert (left_out in shown.err) is child.startswith("valkey")
        await purge(place.parent, "10.1000/A")
        await purge(place.parent, "--prefix", "10.2000")
        assert await place.pull(url, store=child) == 0
        assert await names_of(child) == ["10.1000/B", "10.1000/D", "10.3000/E"]
        await purge(place.parent, "--all")
        await place.put(place.parent, "10.1000/LATER", fetched_at=time.time())
        assert await place.pull(url, store=child) == 0
        assert await names_of(child) == ["10.1000/LATER"]


async def test_a_newer_record_of_the_child_stays(place: Place, child: str) -> None:
    await place.put(place.parent, *NAMES)
    async with serving(place.parent) as url:
        async with open_cache(Settings(store_url=child, mode="sealed")) as cache:
            await cache.put(entry("10.1000/A", "http://newer.example/", fetched_at=NOW + 5))
        assert await place.pull(url, store=child) == 0
        async with open_cache(Settings(store_url=child, mode="sealed")) as cache:
            found = await cache.get("10.1000/A")
    assert found is not None and b"newer.example" in found.answer.values


async def test_the_store_remembers_its_parent_and_shows_it(
    place: Place, child: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    async with serving(place.parent) as url:
        before = time.time()
        assert await place.pull(url, store=child) == 0
        (state,) = await parents_of(child)
        assert (state.url, state.cursor[:3], state.completed_at >= before) == (url, "c1.", True)
        capsys.readouterr()
        assert await asyncio.to_thread(main, ["cache", "stats", "--store-url", child]) == 0
        assert f"follows:  {url}, complete 20" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["cache", "stats", "--json", "--store-url", child]) == 0
        (parent,) = json.loads(capsys.readouterr().out)["parents"]
        assert (parent["url"], parent["cursor"]) == (url, state.cursor)


async def test_a_store_that_was_emptied_takes_everything_again(place: Place, valkey: Any) -> None:
    await place.put(place.parent, *NAMES)
    async with serving(place.parent) as url:
        for _ in range(2):
            child = empty(valkey)
            assert await place.pull(url, store=child) == 0
            assert await names_of(child) == list(NAMES)


@pytest.mark.process
async def test_a_child_that_is_killed_continues_after_the_last_page_that_it_has(
    place: Place, child: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 10)
    names = [f"10.1000/{number:03}" for number in range(95)]
    await place.put(place.parent, *names)
    read, requests = ChangeFeed.read, list[str]()
    running = list[int]()

    async def read_and_kill(feed: ChangeFeed, cursor: str) -> FeedPage | None:
        # The child requests the fifth page after four are durable.
        requests.append(cursor)
        if len(requests) == 5:
            os.kill(running[0], signal.SIGKILL)
        return await read(feed, cursor)

    monkeypatch.setattr(ChangeFeed, "read", read_and_kill)
    async with serving(place.parent) as url:
        command = [sys.executable, "-m", "app", "cache", "pull", "--mode", "sealed", "--store-url", child]
        command += ["--token-file", str(place.folder / "token"), url]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        running.append(process.pid)
        assert await process.wait() == -signal.SIGKILL
        assert await names_of(child) == names[:40]
        assert (await parents_of(child))[0].completed_at == 0.0
        assert await place.pull(url, store=child) == 0
    assert "new 55, kept 0, expired 0, refused 0; 6 pages" in capsys.readouterr().out
    assert await names_of(child) == names


async def test_the_metrics_of_a_child_have_the_time_of_its_last_complete_pull(place: Place) -> None:
    await place.put(place.parent, *NAMES)
    await place.put(place.child)
    async with serving(place.parent) as url, serving(place.child) as child_url:

        def read() -> float:
            with urllib.request.urlopen(f"{child_url}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            (value,) = (line.split()[1] for line in lines if line.startswith("doi_proxy_parent_pull_timestamp_seconds"))
            return float(value)

        assert await asyncio.to_thread(read) == 0.0
        before = time.time()
        assert await place.pull(url) == 0
        assert before <= await asyncio.to_thread(read) <= time.time()
