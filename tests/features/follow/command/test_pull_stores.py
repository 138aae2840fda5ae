"""Replicas of each kind of store: what arrives, what the store remembers, and a replica that is killed."""

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
from app.assembly.command_stores import CommandStores
from app.assembly.settings import Settings
from app.cli.main import main
from app.features.follow.change_feed import ChangeFeed, FeedPage
from app.features.follow.primaries import PrimaryState, read_primaries
from tests.cache.entries import entry
from tests.features.follow.command.primaries import NAMES, NOW, Place, serving, write_registry
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
def replica(request: pytest.FixtureRequest, place: Place) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{place.replica}"
    return empty(request.getfixturevalue("valkey"))


async def names_of(url: str) -> list[str]:
    async with CommandStores(Settings(store_url=url, mode="sealed")).open() as cache:
        return sorted([one.key async for one in cache.scan()])


async def primaries_of(url: str) -> tuple[PrimaryState, ...]:
    async with CommandStores(Settings(store_url=url, mode="sealed")).open() as cache:
        return await read_primaries(cache)


async def purge(path: Path, *selection: str) -> None:
    assert await asyncio.to_thread(main, ["cache", "purge", "--store-url", f"sqlite:///{path}", *selection]) == 0


@pytest.mark.process
async def test_records_and_purges_arrive_and_registry_records_only_in_a_file(
    place: Place, replica: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = sorted([*NAMES, "10.1000/D", "10.3000/E"])
    await place.put(place.primary, *names)
    write_registry(place.primary, "10.4000/R", "10.4000/S")
    async with serving(place.primary) as url:
        assert await place.pull(url, store=replica) == 0
        shown = capsys.readouterr()
        assert await names_of(replica) == names
        left_out = "2 records of registration agencies were left out: only a store sqlite:///path has them"
        assert (left_out in shown.err) is replica.startswith("valkey")
        await purge(place.primary, "10.1000/A")
        await purge(place.primary, "--prefix", "10.2000")
        assert await place.pull(url, store=replica) == 0
        assert await names_of(replica) == ["10.1000/B", "10.1000/D", "10.3000/E"]
        await purge(place.primary, "--all")
        await place.put(place.primary, "10.1000/LATER", fetched_at=time.time())
        assert await place.pull(url, store=replica) == 0
        assert await names_of(replica) == ["10.1000/LATER"]


async def test_a_newer_record_of_the_replica_stays(place: Place, replica: str) -> None:
    await place.put(place.primary, *NAMES)
    async with serving(place.primary) as url:
        async with CommandStores(Settings(store_url=replica, mode="sealed")).open() as cache:
            await cache.put(entry("10.1000/A", "http://newer.example/", fetched_at=NOW + 5))
        assert await place.pull(url, store=replica) == 0
        async with CommandStores(Settings(store_url=replica, mode="sealed")).open() as cache:
            found = await cache.get("10.1000/A")
    assert found is not None and b"newer.example" in found.answer.values


async def test_the_store_remembers_its_primary_and_shows_it(
    place: Place, replica: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.primary, *NAMES)
    async with serving(place.primary) as url:
        before = time.time()
        assert await place.pull(url, store=replica) == 0
        (state,) = await primaries_of(replica)
        assert (state.url, state.cursor[:3], state.completed_at >= before) == (url, "c1.", True)
        capsys.readouterr()
        assert await asyncio.to_thread(main, ["cache", "stats", "--store-url", replica]) == 0
        assert f"primary:  {url}, complete 20" in capsys.readouterr().out
        assert await asyncio.to_thread(main, ["cache", "stats", "--json", "--store-url", replica]) == 0
        (primary,) = json.loads(capsys.readouterr().out)["primaries"]
        assert (primary["url"], primary["cursor"]) == (url, state.cursor)


async def test_a_store_that_was_emptied_takes_everything_again(place: Place, valkey: Any) -> None:
    await place.put(place.primary, *NAMES)
    async with serving(place.primary) as url:
        for _ in range(2):
            replica = empty(valkey)
            assert await place.pull(url, store=replica) == 0
            assert await names_of(replica) == list(NAMES)


@pytest.mark.process
async def test_a_replica_that_is_killed_continues_after_the_last_page_that_it_has(
    place: Place, replica: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 10)
    names = [f"10.1000/{number:03}" for number in range(95)]
    await place.put(place.primary, *names)
    read, requests = ChangeFeed.read, list[str]()
    running = list[int]()

    async def read_and_kill(feed: ChangeFeed, cursor: str) -> FeedPage | None:
        # The replica requests the fifth page after four are durable.
        requests.append(cursor)
        if len(requests) == 5:
            os.kill(running[0], signal.SIGKILL)
        return await read(feed, cursor)

    monkeypatch.setattr(ChangeFeed, "read", read_and_kill)
    async with serving(place.primary) as url:
        command = [sys.executable, "-m", "app", "cache", "pull", "--mode", "sealed", "--store-url", replica]
        command += ["--token-file", str(place.folder / "token"), url]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        running.append(process.pid)
        assert await process.wait() == -signal.SIGKILL
        assert await names_of(replica) == names[:40]
        assert (await primaries_of(replica))[0].completed_at == 0.0
        assert await place.pull(url, store=replica) == 0
    assert "new 55, kept 0, expired 0, refused 0; 6 pages" in capsys.readouterr().out
    assert await names_of(replica) == names


async def test_the_metrics_of_a_replica_have_the_time_of_its_last_complete_pull(place: Place) -> None:
    await place.put(place.primary, *NAMES)
    await place.put(place.replica)
    async with serving(place.primary) as url, serving(place.replica) as replica_url:

        def read() -> float:
            with urllib.request.urlopen(f"{replica_url}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            values = dict(line.split() for line in lines if "_pull_timestamp_seconds" in line and line[0] != "#")
            # Both names have the value.
            assert len(values) == 2
            (value,) = set(values.values())
            return float(value)

        assert await asyncio.to_thread(read) == 0.0
        before = time.time()
        assert await place.pull(url) == 0
        assert before <= await asyncio.to_thread(read) <= time.time()
