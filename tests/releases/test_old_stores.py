"""Stores and bundles that earlier releases wrote: every record is answered while the upstream is down."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from app.assembly.checks import CoreInspection, find_upgrade
from app.assembly.settings import Settings
from app.assembly.stores import read_tables
from app.cache.entry import Entry
from app.cache.store import SharedStore
from app.errors import StoreError
from app.features.bundles.bundle import BundleEnd, Checksum, read_bundle
from app.features.bundles.import_bundle import BundleImport, ImportBounds
from app.features.rewriting.rewriting import rewrite_entries
from app.features.sqlite.store import SqliteStore
from app.features.store_format import STORE_FORMAT, Rewritable
from app.features.stored_entry import has_old_layout
from app.features.valkey.store import ValkeyStore
from tests.cache.conftest import valkey_url
from tests.clock import Clock
from tests.parts import usual_cache
from tests.releases.stores import (
    ANSWERS,
    FILES,
    HERE,
    LATER,
    REGISTERED,
    RELEASES,
    clock_of,
    load_keys,
    unpack_file,
)
from tests.web.proxy import running_with

__all__ = ["valkey_url"]

pytestmark = pytest.mark.anyio

#: Nothing listens there.
NOWHERE: Final = "http://127.0.0.1:9"
BOUNDS: Final = ImportBounds(negative_ttl=86_400, ttl_ceiling=86_400, grace=30 * 86_400, sealed=False)
#: Entries of release 0.1.0 in its store: those of ANSWERS, and the prefix that the not-found page queries.
OLD_ENTRIES: Final = len(ANSWERS) + 1


def expected(release: str) -> tuple[tuple[str, int, str | None], ...]:
    answers = ANSWERS + REGISTERED if release == "0.2.0" else ANSWERS
    return answers + LATER if release == "0.1.0-0.2.0" else answers


async def check_answers(url: str, release: str, answers: tuple[tuple[str, int, str | None], ...]) -> None:
    """Start the application twice: the first one rewrites what the second one finds."""
    for _ in range(2):
        async with running_with(None, clock=clock_of(release), store_url=url, upstream_url=NOWHERE) as proxy:
            for name, status, target in answers:
                got = await proxy.get(f"/{name}", host="resolver.example")
                assert (name, got.status, got["location"]) == (name, status, target)
                assert "hit" in (got["cache-status"] or "")


def rounded(entry: Entry) -> tuple[Any, ...]:
    """An entry without the fractions of its expiries, which this release does not store."""
    times = (entry.fresh_until - entry.fetched_at, entry.stale_until - entry.fetched_at)
    return entry.key, entry.answer, entry.fetched_at, *map(int, times)


async def entries_of(store: SharedStore) -> list[tuple[Any, ...]]:
    return sorted({rounded(entry) async for entry in store.scan()})


async def rewrite_all(store: Rewritable) -> None:
    async def find() -> Rewritable:
        return store

    await rewrite_entries(find, sleep=lambda _: asyncio.sleep(0))


def rows_of(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return [data for (data,) in connection.execute("SELECT data FROM entries ORDER BY key")]


# --- SQLite ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", FILES)
async def test_every_record_of_a_file_is_answered(release: str, tmp_path: Path) -> None:
    await check_answers(f"sqlite:///{unpack_file(release, tmp_path)}", release, expected(release))


@pytest.mark.parametrize("release", FILES)
async def test_rewriting_a_file_changes_no_entry(release: str, tmp_path: Path) -> None:
    path, clock = unpack_file(release, tmp_path), clock_of(release)
    had_old = any(map(has_old_layout, rows_of(path)))
    store = SqliteStore(path, clock=clock, max_bytes=10**9, tables=read_tables())
    before, number = await entries_of(store), (await store.stats()).entries
    await rewrite_all(store)
    assert await entries_of(store) == before
    assert (await store.stats()).entries == number == len(rows_of(path))
    assert not any(map(has_old_layout, rows_of(path)))
    assert had_old is (release != "0.2.0")
    await store.close()


@pytest.mark.parametrize("release", FILES)
async def test_a_file_says_its_format_and_earlier_programs_refuse_it(release: str, tmp_path: Path) -> None:
    """Both earlier programs refuse a file of another application before they look at anything else of it."""
    path = unpack_file(release, tmp_path)
    await SqliteStore(path, clock=clock_of(release), max_bytes=10**9, tables=read_tables()).close()
    with closing(sqlite3.connect(path)) as connection:
        pragmas = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")]
    assert pragmas == [STORE_FORMAT, int.from_bytes(b"DOIq", "big")]


def add_old_rows(path: Path, number: int) -> None:
    """Add copies of a row of release 0.1.0 to its file. Its checksum does not cover the key."""
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = "stale_until, last_used, data"
        row = connection.execute(f"SELECT {columns} FROM entries WHERE key = '10.5072/ONE'").fetchone()
        rows = [(f"10.5072/COPY-{n:05}", *row) for n in range(number)]
        connection.executemany(f"INSERT INTO entries (key, {columns}) VALUES (?, ?, ?, ?)", rows)


async def test_a_process_continues_where_another_one_was_killed(tmp_path: Path) -> None:
    path, clock = unpack_file("0.1.0", tmp_path), clock_of("0.1.0")
    add_old_rows(path, 500)
    killed = SqliteStore(path, clock=clock, max_bytes=10**9, tables=read_tables())
    first = await killed.rewrite()
    assert first is not None and not first.is_done
    assert "are rewritten, 200 visited" in (await killed.stats()).detail
    await killed.close()
    store = SqliteStore(path, clock=clock, max_bytes=10**9, tables=read_tables())
    second, third = await store.rewrite(), await store.rewrite()
    assert second is not None and third is not None
    assert [one.visited for one in (first, second, third)] == [200, 400, 500 + OLD_ENTRIES]
    assert (third.rewritten, third.unreadable, third.is_done) == (500 + OLD_ENTRIES, 0, True)
    assert await store.rewrite() is None
    assert not any(map(has_old_layout, rows_of(path)))
    await store.close()


async def test_of_several_processes_one_rewrites_and_logs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = unpack_file("0.1.0", tmp_path), clock_of("0.1.0")
    add_old_rows(path, 500)
    caplog.set_level(logging.INFO)
    stores = [SqliteStore(path, clock=clock, max_bytes=10**9, tables=read_tables()) for _ in range(3)]
    await asyncio.gather(*map(rewrite_all, stores))
    assert [record.message.partition(", in ")[0] for record in caplog.records] == [
        "The store has entries of an earlier release. Rewriting them to format 3.",
        f"The store has format 3: {500 + OLD_ENTRIES} of {500 + OLD_ENTRIES} entries visited,"
        f" {500 + OLD_ENTRIES} rewritten",
    ]
    for store in stores:
        await store.close()


async def test_a_damaged_row_stays_and_is_counted(tmp_path: Path) -> None:
    path, clock = unpack_file("0.1.0", tmp_path), clock_of("0.1.0")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET data = CAST(data || x'00' AS BLOB) WHERE key = '10.5072/ONE'")
    store = SqliteStore(path, clock=clock, max_bytes=10**9, tables=read_tables())
    progress = await store.rewrite()
    assert progress is not None and progress.is_done
    assert (progress.rewritten, progress.unreadable) == (OLD_ENTRIES - 1, 1)
    await store.close()


# --- Valkey ----------------------------------------------------------------------------------------------------------


@pytest.mark.valkey
@pytest.mark.parametrize("release", RELEASES)
async def test_every_record_of_a_server_is_answered(release: str, valkey_url: str) -> None:
    await load_keys(release, valkey_url)
    await check_answers(valkey_url, release, ANSWERS)


@pytest.mark.valkey
@pytest.mark.parametrize("release", RELEASES)
async def test_rewriting_a_server_changes_no_entry(release: str, valkey_url: str) -> None:
    await load_keys(release, valkey_url)
    client: Any = Redis.from_url(valkey_url.replace("valkey", "redis", 1))
    store = ValkeyStore(valkey_url, clock=clock_of(release), timeout=5.0)
    before = await entries_of(store)
    assert await client.get("doi-proxy:v1:format") == b"3 rewriting"
    await rewrite_all(store)
    assert await entries_of(store) == before and len(before) == OLD_ENTRIES
    assert await client.get("doi-proxy:v1:format") == b"3"
    names = await client.keys("doi-proxy:v1:entry:*")
    assert not any([has_old_layout(await client.get(name)) for name in names])
    assert all([await client.pttl(name) > 0 for name in names])
    assert await store.rewrite() is None
    await store.close()
    await client.aclose()


@pytest.mark.valkey
async def test_a_server_of_a_newer_release_is_refused_and_not_changed(valkey_url: str) -> None:
    await load_keys("0.2.0", valkey_url)
    client: Any = Redis.from_url(valkey_url.replace("valkey", "redis", 1))
    await client.set("doi-proxy:v1:format", f"{STORE_FORMAT + 1}")
    keys = sorted(await client.keys())
    store = ValkeyStore(valkey_url, clock=clock_of("0.2.0"), timeout=5.0)
    with pytest.raises(StoreError, match=f"has format {STORE_FORMAT + 1}, but .* use a newer doi-proxy"):
        await store.get("10.5072/ONE")
    with pytest.raises(StoreError, match="use a newer doi-proxy"):
        await store.lease("10.5072/ONE", "owner", 5.0)
    assert "use a newer doi-proxy" in (await store.stats()).detail
    assert sorted(await client.keys()) == keys
    await store.close()
    await client.aclose()


# --- What an upgrade keeps -------------------------------------------------------------------------------------------


def check_upgrade(url: str) -> list[str]:
    settings = Settings(store_url=url)
    return [found.problem.partition("entries examined ")[2] for found in find_upgrade(CoreInspection(settings))]


@pytest.mark.parametrize(("release", "kept", "old"), [("0.1.0", 9, 9), ("0.2.0", 9, 0), ("0.1.0-0.2.0", 10, 9)])
def test_a_check_says_what_an_upgrade_keeps_of_a_file(release: str, kept: int, old: int, tmp_path: Path) -> None:
    path = unpack_file(release, tmp_path)
    before = path.read_bytes()
    (found,) = check_upgrade(f"sqlite:///{path}")
    assert f"{kept} are kept, {old} of them are rewritten after the start, and 0 are not readable" in found
    assert path.read_bytes() == before


@pytest.mark.valkey
@pytest.mark.parametrize(("release", "old"), [("0.1.0", 9), ("0.2.0", 0)])
def test_a_check_says_what_an_upgrade_keeps_of_a_server(release: str, old: int, valkey_url: str) -> None:
    asyncio.run(load_keys(release, valkey_url))
    for _ in range(2):
        (found,) = check_upgrade(valkey_url)
        assert f"9 are kept, {old} of them are rewritten after the start, and 0 are not readable" in found


async def test_a_check_says_nothing_about_a_store_of_this_release(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    await SqliteStore(path, clock=Clock(), max_bytes=10**9, tables=read_tables()).close()
    assert await asyncio.to_thread(check_upgrade, f"sqlite:///{path}") == []


# --- Bundles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["0.1.0.bundle", "0.2.0.bundle"])
async def test_every_record_of_a_bundle_is_answered(name: str, tmp_path: Path) -> None:
    release = name.removesuffix(".bundle")
    path, clock = tmp_path / "store.sqlite3", clock_of(release)
    url = f"sqlite:///{path}"
    cache = usual_cache(url, clock=clock)
    work = BundleImport(cache, BOUNDS, clock)
    items = list(read_bundle(BytesIO((HERE / f"{name}.ndjson").read_bytes())))
    for item in items:
        await work.add(item)
    await work.finish()
    await cache.close()
    end = items[-1]
    assert isinstance(end, BundleEnd)
    assert (end.refused, end.checksum) == (0, Checksum.RIGHT)
    await check_answers(url, release, ANSWERS)
