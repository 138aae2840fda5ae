"""The log of changes of a SQLite store, and the pages that other stores read from it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app.features.follow.sqlite_change_pages
import app.features.registry.sqlite_change_log
from app.assembly.stores import read_tables
from app.cache.purges import NOT_FOUND
from app.features.bundles.delta import Cursor, DeltaStage, parse_cursor
from app.features.bundles.lines import from_line
from app.features.follow.errors import ChangesGone
from app.features.follow.sqlite_change_pages import ChangePage, find_cursor, read_changes, write_delta
from app.features.registry.record import make_record
from app.features.registry.sqlite_table import RegistryTable
from app.features.registry.wire import to_row
from app.features.sqlite.store import SqliteStore
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
KEYS = ("10.1000/A", "10.1000/B", "10.1000/C")


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "primary.db"


def open_store(path: Path, clock: Clock) -> SqliteStore:
    return SqliteStore(path, clock=clock, max_bytes=10_000_000, gather=0.0, tables=read_tables())


async def put(store: SqliteStore, *keys: str) -> None:
    for key in keys:
        await store.put(entry(key))
    await store.flush()


def write_registry(path: Path, *keys: str, clock: Clock) -> None:
    with RegistryTable(path, clock=clock) as table:
        table.write([to_row(make_record(key, f"http://r.example/{key}", "Crossref", 5)) for key in keys])


def run(command: str, folder: Path) -> str:
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout


def summary(page: ChangePage) -> list[str]:
    return [_short(json.loads(line)) for line in page.lines]


def _short(line: dict[str, Any]) -> str:
    return line.get("handle") or "; ".join(
        f"{name} {line[name]}" for name in ("registry", "purged", "forgotten") if name in line
    )


def all_pages(path: Path, cursor: Cursor | None = None) -> tuple[list[str], Cursor]:
    found: list[str] = []
    while True:
        page = read_changes(path, cursor, NOW)
        found += summary(page)
        cursor = parse_cursor(str(page.cursor))
        if not page.more:
            return found, cursor


async def test_without_a_cursor_everything_is_read_and_then_only_what_is_new(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    write_registry(path, "10.2000/R", clock=clock)
    found, cursor = all_pages(path)
    assert found == [*KEYS, "registry 10.2000/R"]
    assert all_pages(path, cursor) == ([], cursor)
    await put(store, "10.1000/B")
    assert all_pages(path, cursor)[0] == ["10.1000/B"]
    await store.close()


async def test_a_purge_comes_before_the_record_that_was_fetched_after_it(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    _, cursor = all_pages(path)
    await store.delete("10.1000/A")
    await store.flush()
    await store.delete("10.1000/B")
    await store.flush()
    await put(store, "10.1000/A")
    assert all_pages(path, cursor)[0] == ["purged 10.1000/A", "purged 10.1000/B", "10.1000/A"]
    await store.close()


async def test_a_purge_of_a_prefix_is_one_line_and_not_one_for_each_of_its_names(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    _, cursor = all_pages(path)
    clock.advance(10)
    await store.delete("10.1000/")
    await store.flush()
    for key in KEYS:
        await store.delete(key)
    await store.delete("10.1000/UNKNOWN")
    await store.flush()
    assert all_pages(path, cursor)[0] == ["purged 10.1000/", "purged 10.1000/UNKNOWN"]
    await store.close()


async def test_a_purge_of_every_not_found_is_a_line_for_each_of_its_names(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await store.put(missing("10.1000/MISSING"))
    await put(store, *KEYS)
    _, cursor = all_pages(path)
    clock.advance(10)
    await store.delete(NOT_FOUND)
    await store.flush()
    await store.delete("10.1000/MISSING", announce=False)
    await store.announce(NOT_FOUND)
    await store.flush()
    assert all_pages(path, cursor)[0] == ["purged 10.1000/MISSING"]
    await store.close()


def earlier_of(page: ChangePage) -> list[list[dict[str, str]]]:
    return [json.loads(line).get("earlier", []) for line in page.lines]


async def test_a_record_whose_target_changed_says_where_it_led_before(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    _, cursor = all_pages(path)
    later = entry(KEYS[1], "https://later.example/", fetched_at=NOW + 60)
    await store.put(later)
    await store.flush()
    moved = {
        "url": "http://www.doi.org/hb.html",
        "seen": "2023-11-14T22:13:20Z",
        "replaced": "2023-11-14T22:14:20Z",
    }
    page = read_changes(path, cursor, NOW)
    assert earlier_of(page) == [[moved]]
    assert earlier_of(read_changes(path, None, NOW)) == [[], [moved], []]
    assert from_line(page.lines[0]) == later, "a member that is not of the record changes nothing"
    await store.delete(KEYS[1])
    await store.put(later)
    await store.flush()
    assert earlier_of(read_changes(path, None, NOW)) == [[], [], []]
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE earlier_targets",
        "ALTER TABLE earlier_targets DROP COLUMN replaced",
        "UPDATE earlier_targets SET target = x'ff'",
        "UPDATE earlier_targets SET seen = 'late'",
    ],
)
async def test_earlier_targets_that_cannot_be_read_are_left_out(path: Path, clock: Clock, statement: str) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    await store.put(entry(KEYS[1], "https://later.example/", fetched_at=NOW + 60))
    await store.close()
    change(path, statement)
    assert earlier_of(read_changes(path, None, NOW)) == [[], [], []]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_the_documented_command_prints_what_moved(path: Path, clock: Clock, tmp_path: Path) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    await store.put(entry(KEYS[1], "https://later.example/", fetched_at=NOW + 60))
    await store.close()
    with (tmp_path / "delta.ndjson").open("wb") as file:
        write_delta(path, None, "", file, clock, whole=True)
    text = (ROOT / "docs" / "replication.md").read_text()
    command = next(line for line in text.splitlines() if line.startswith("jq "))
    for day, printed in (("2023-11-14", f"{KEYS[1]}\thttp://www.doi.org/hb.html\n"), ("2023-11-15", "")):
        assert await asyncio.to_thread(run, command.replace("2026-01-31", day), tmp_path) == printed


async def test_small_pages_have_every_line_once(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(path, clock)
    await put(store, *KEYS)
    write_registry(path, "10.2000/R", "10.2000/S", "10.2000/T", clock=clock)
    everything, _ = all_pages(path)
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", 2)
    assert all_pages(path)[0] == everything
    log, _ = all_pages(path, Cursor(read_changes(path, None, NOW).cursor.origin, 0))
    assert log == everything
    await store.close()


async def test_a_record_that_was_written_many_times_is_sent_once(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    _, cursor = all_pages(path)
    for _ in range(3):
        await put(store, "10.1000/A")
    assert all_pages(path, cursor)[0] == ["10.1000/A"]
    await store.close()


async def test_a_registry_record_that_left_the_files_is_forgotten(path: Path, clock: Clock) -> None:
    write_registry(path, "10.2000/R", "10.2000/S", clock=clock)
    _, cursor = all_pages(path)
    with RegistryTable(path, clock=clock) as table:
        table.forget(["10.2000/R"])
    assert all_pages(path, cursor)[0] == ["forgotten 10.2000/R"]


async def test_the_log_is_bounded_and_says_when_a_cursor_is_too_old(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.features.registry.sqlite_change_log, "MAX_ROWS", 5)
    monkeypatch.setattr(app.features.registry.sqlite_change_log, "SLACK", 0)
    store = open_store(path, clock)
    _, cursor = all_pages(path)
    for number in range(20):
        await put(store, f"10.1000/{number}")
    with pytest.raises(ChangesGone, match="does not go back"):
        read_changes(path, cursor, NOW)
    with pytest.raises(ChangesGone, match="does not go back"):
        find_cursor(path, NOW - 1)
    assert all_pages(path, Cursor(cursor.origin, 16))[0] == ["10.1000/16", "10.1000/17", "10.1000/18", "10.1000/19"]
    await store.close()


async def test_a_cursor_of_another_store_or_of_a_later_state_is_refused(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    origin = read_changes(path, None, NOW).cursor.origin
    for cursor in (Cursor("0" * 16, 0), Cursor(origin, 7), Cursor(origin, 7, DeltaStage.ENTRIES)):
        with pytest.raises(ChangesGone, match="another store"):
            read_changes(path, cursor, NOW)
    await store.close()


async def test_a_store_that_was_restored_and_has_as_many_changes_again_is_noticed(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, KEYS[0])
    await store.close()
    backup = path.read_bytes()
    for keys in (("10.1000/LOST",), KEYS[1:]):
        path.write_bytes(backup)
        clock.advance(60)
        store = open_store(path, clock)
        await put(store, *keys)
        await store.close()
        if keys != KEYS[1:]:
            _, cursor = all_pages(path)
    with pytest.raises(ChangesGone, match="another state"):
        read_changes(path, cursor, NOW)
    earlier_release = parse_cursor(str(cursor).rpartition(".")[0])
    assert earlier_release.mark == ""
    assert summary(read_changes(path, earlier_release, NOW)) == [KEYS[2]]


# --- ranges of registry records -----------------------------------------------------------------------------------


def keys_of(numbers: Iterable[int]) -> list[str]:
    return [f"10.2000/{number:05}" for number in numbers]


def log_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM change_log").fetchone()[0])


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


MANY, FEW = range(3_000), range(7, 3_000, 50)


@pytest.fixture
def cursor(path: Path, clock: Clock) -> Cursor:
    """The end of the log of a store with MANY registry records."""
    write_registry(path, *keys_of(MANY), clock=clock)
    assert log_rows(path) == 1
    return all_pages(path)[1]


def rewrite(path: Path, numbers: Iterable[int], clock: Clock, *, date: int = 9) -> None:
    """Write registry records again, with a later date."""
    rows = [to_row(make_record(key, f"http://later.example/{key}", "Crossref", date)) for key in keys_of(numbers)]
    with RegistryTable(path, clock=clock) as table:
        table.write(rows)


@pytest.mark.parametrize("page", [7, 2_000])
async def test_changes_at_random_are_one_row_of_the_log_and_only_they_are_sent(
    path: Path, clock: Clock, cursor: Cursor, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(path, FEW, clock)
    assert log_rows(path) == 2
    monkeypatch.setattr(app.features.follow.sqlite_change_pages, "MAX_CHANGES", page)
    assert all_pages(path, cursor)[0] == [f"registry {key}" for key in keys_of(FEW)]


async def test_a_range_of_which_most_records_changed_is_sent_as_a_whole(
    path: Path, clock: Clock, cursor: Cursor
) -> None:
    rewrite(path, range(100, 2_000, 2), clock)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM change_log_keys").fetchone() == (0,)
    assert all_pages(path, cursor)[0] == [f"registry {key}" for key in keys_of(range(100, 1_999))]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE change_log_keys",
        "DELETE FROM change_log_keys",
        "UPDATE change_log_keys SET keys = x'00'",
        "UPDATE change_log_keys SET keys = x'00000000' || substr(keys, 5)",
        "UPDATE change_log_keys SET keys = 'text'",
    ],
)
async def test_without_the_keys_all_records_of_the_range_are_sent(
    path: Path, clock: Clock, cursor: Cursor, statement: str
) -> None:
    rewrite(path, FEW, clock)
    change(path, statement)
    assert all_pages(path, cursor)[0] == [f"registry {key}" for key in keys_of(range(FEW[0], FEW[-1] + 1))]


async def test_what_happened_after_a_range_comes_after_it(path: Path, clock: Clock, cursor: Cursor) -> None:
    rewrite(path, FEW, clock)
    purged, forgotten = keys_of(FEW[:2])
    store = open_store(path, clock)
    await store.delete(purged)
    await store.close()
    with RegistryTable(path, clock=clock) as table:
        table.forget([forgotten])
    rewrite(path, FEW[:1], clock, date=10)
    found = all_pages(path, cursor)[0]
    assert found == [
        *(f"registry {key}" for key in keys_of(FEW) if key != forgotten),
        f"purged {purged}",
        f"forgotten {forgotten}",
        f"registry {purged}",
    ]


async def test_the_keys_are_bounded_and_the_log_ends_where_they_do(
    path: Path, clock: Clock, cursor: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.features.registry.sqlite_change_log, "MAX_KEY_BYTES", 2_000)
    cursors = [cursor]
    for date in range(10, 40):
        rewrite(path, FEW, clock, date=date)
        cursors.append(all_pages(path, cursors[-1])[1])
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("SELECT sum(length(keys)) FROM change_log_keys").fetchone()
    assert size < 2_500
    assert all_pages(path, cursors[-2])[0] == [f"registry {key}" for key in keys_of(FEW)]
    with pytest.raises(ChangesGone, match="does not go back"):
        read_changes(path, cursor, NOW)


async def test_a_time_is_a_cursor_too(path: Path, clock: Clock) -> None:
    store = open_store(path, clock)
    await put(store, "10.1000/A")
    clock.advance(100)
    await put(store, "10.1000/B")
    assert all_pages(path, find_cursor(path, NOW + 50))[0] == ["10.1000/B"]
    assert all_pages(path, find_cursor(path, NOW + 200))[0] == []
    with pytest.raises(ChangesGone):
        find_cursor(path, NOW - 1)
    await store.close()
