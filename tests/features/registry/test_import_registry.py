"""The import of registry files into a store."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from doi_proxy.assembly.features import find_records
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry import import_files
from doi_proxy.features.registry.answers import count_registry
from doi_proxy.features.registry.import_files import ImportRequest, Missing, RegistryReport, import_registry
from doi_proxy.features.registry.json_values import RegistryFormat
from doi_proxy.features.registry.sqlite_blocks import RegistryTable
from doi_proxy.features.registry.staging import Staging
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.system.progress import Bar
from tests.cache.entries import entry
from tests.features.registry import interrupted_import
from tests.features.registry.samples import crossref_work, datacite_record, json_lines, tar, write

pytestmark = pytest.mark.process

NOW = 1_800_000_000.0
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def no_bar(label: str, total: float | None, in_bytes: bool) -> Generator[Bar]:
    """No bar."""
    yield Bar()


def imports(
    store: Path,
    source: Path | str,
    *,
    form: RegistryFormat | None = None,
    since: int = 0,
    missing: Missing | None = None,
    restart: bool = False,
) -> RegistryReport:
    """Import a file or a folder, with one worker: each starts for a third of a second."""
    request = ImportRequest(str(source), form, since, missing, restart, 1, 250_000)
    return import_registry(request, store, no_bar, clock=lambda: NOW)


def content(store: Path) -> dict[str, tuple[str, str, int]]:
    """The registry records of a store."""
    with RegistryTable(store, now=NOW) as table:
        found = {key: (url, agency, date) for page in table.pages() for key, date, agency, url in page}
        assert table.count() == len(found)
    return found


def table_of(*rows: tuple[str, str, str, str]) -> bytes:
    """A CSV file."""
    return b"doi,url,agency,date\n" + "".join(",".join(row) + "\n" for row in rows).encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a store that is not there yet."""
    return tmp_path / "store.sqlite3"


def test_records_of_both_agencies_are_stored_and_nothing_is_left_beside_the_store(store: Path, tmp_path: Path) -> None:
    work = crossref_work("10.5555/Work", "https://example.org/work")
    record = datacite_record("10.5555/record", "https://example.org/record")
    archive = tar({"0.jsonl": json_lines([work, {}]), "part_0000.jsonl": json_lines([record]), "README": b"x"})
    report = imports(store, write(tmp_path / "a.tar", archive))
    assert content(store) == {
        "10.5555/WORK": ("https://example.org/work", "Crossref", 1_719_792_000),
        "10.5555/RECORD": ("https://example.org/record", "DataCite", 1_719_792_000),
    }
    assert dict(report.counts) == {**dict.fromkeys(report.counts, 0), "read": 3, "new": 2, "refused": 1, "left_out": 1}
    assert report.reasons == [f"{tmp_path}/a.tar!0.jsonl: record 2: it has no DOI name"]
    assert report.left_out == [(f"{tmp_path}/a.tar!README", "is not a file of records")]
    assert not store.with_name("store.sqlite3.import").exists()


def test_the_newest_record_of_a_name_wins_in_one_import_and_between_imports(store: Path, tmp_path: Path) -> None:
    source = write(
        tmp_path / "a.csv",
        table_of(
            ("10.5555/a", "https://example.org/1", "X", "2020-01-01"),
            ("10.5555/A", "https://example.org/3", "X", "2022-01-01"),
            ("10.5555/a", "https://example.org/2", "X", "2021-01-01"),
            ("10.5555/b", "https://example.org/b", "X", "2021-01-01"),
            ("10.5555/c", "https://example.org/c", "X", "2021-01-01"),
        ),
    )
    first = imports(store, source)
    assert {key: first.counts[key] for key in ("new", "repeated")} == {"new": 3, "repeated": 2}
    assert content(store)["10.5555/A"][0] == "https://example.org/3"
    later = table_of(
        ("10.5555/a", "https://example.org/older", "X", "2019-01-01"),
        ("10.5555/b", "https://example.org/changed", "X", "2023-01-01"),
        ("10.5555/c", "https://example.org/c", "X", "2023-01-01"),
    )
    second = imports(store, write(tmp_path / "b.csv", later))
    assert {key: second.counts[key] for key in ("new", "changed", "same", "older")} == {
        "new": 0, "changed": 1, "same": 1, "older": 1,
    }  # fmt: skip
    assert [content(store)[f"10.5555/{key}"][0][20:] for key in "ABC"] == ["3", "changed", "c"]


def test_records_from_before_a_date_are_left_out_and_counted(store: Path, tmp_path: Path) -> None:
    rows = [(f"10.5555/{year}", "https://example.org/", "X", f"{year}-01-01") for year in (2019, 2020, 2021)]
    report = imports(store, write(tmp_path / "a.csv", table_of(*rows)), since=1_577_836_800)
    assert (report.counts["before"], sorted(content(store))) == (1, ["10.5555/2020", "10.5555/2021"])


def test_reading_stops_if_no_record_is_usable(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_files, "MAX_USELESS", 6)
    works = [crossref_work(f"10.5555/{number}", None) for number in range(3)]
    for number in range(9):
        write(tmp_path / f"old/{number}.jsonl", json_lines(works))
    write(tmp_path / "old/9.jsonl", json_lines([crossref_work("10.5555/new", "https://example.org/")]))
    report = imports(store, tmp_path / "old")
    assert (report.is_useless, report.lacks_targets) == (True, True)
    assert 6 <= report.counts["read"] == report.counts["refused"] < 27
    # A record that is usable, before so many were refused, says that the files are right.
    write(tmp_path / "old/0.jsonl", json_lines([crossref_work("10.5555/new", "https://example.org/")]))
    # One worker reads the files in their order.
    report = imports(store, tmp_path / "old")
    assert (report.is_useless, report.counts["read"], report.counts["new"]) == (False, 26, 1)


def test_nothing_is_forgotten_if_reading_has_stopped(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_files, "MAX_USELESS", 6)
    url = "https://example.org/"
    imports(store, write(tmp_path / "a.jsonl", json_lines([crossref_work("10.5555/a", url)])))
    for number in range(2):
        works = [crossref_work(f"10.5555/{number}{each}", None) for each in range(3)]
        write(tmp_path / f"later/{number}.jsonl", json_lines(works))
    # It may be read already when reading stops. The file after it has the name of the store.
    write(tmp_path / "later/2.jsonl", json_lines([crossref_work("10.5555/b", url)]))
    write(tmp_path / "later/3.jsonl", json_lines([crossref_work("10.5555/a", url)]))
    report = imports(store, tmp_path / "later", missing=Missing.FORGET)
    assert (report.counts["failures"], report.counts["absent"]) == (1, 0)
    assert "10.5555/A" in content(store)


@pytest.mark.parametrize("missing", Missing)
def test_names_that_a_complete_file_does_not_have_are_counted_or_forgotten(
    store: Path, tmp_path: Path, missing: Missing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_files, "_BATCH", 2)
    names = [f"10.5555/{letter}" for letter in "abcdefghij"]
    rows = [(name, "https://example.org/", "X", "2020-01-01") for name in names]
    other = ("10.5555/cc", "https://example.org/", "Other", "2020-01-01")
    imports(store, write(tmp_path / "a.csv", table_of(*rows, other)))
    report = imports(store, write(tmp_path / "b.csv", table_of(*rows[1:4], *rows[6:8])), missing=missing)
    assert report.counts["absent"] == 5
    left = {"10.5555/B", "10.5555/C", "10.5555/CC", "10.5555/D", "10.5555/G", "10.5555/H"}
    assert set(content(store)) == (left if missing is Missing.FORGET else {name.upper() for name in (*names, other[0])})


def test_nothing_is_forgotten_if_a_file_could_not_be_read(store: Path, tmp_path: Path) -> None:
    imports(store, write(tmp_path / "a.csv", table_of(("10.5555/a", "https://example.org/", "X", ""))))
    write(tmp_path / "later/b.csv", table_of(("10.5555/b", "https://example.org/", "X", "")))
    write(tmp_path / "later/c.tar", tar({"c.csv": b"x" * 5_000})[:2_000])
    report = imports(store, tmp_path / "later", missing=Missing.FORGET)
    assert (report.counts["failures"], report.counts["absent"]) == (1, 0)
    assert set(content(store)) == {"10.5555/A", "10.5555/B"}


def test_a_handle_record_of_the_store_is_not_touched_and_another_import_waits_its_turn(
    store: Path, tmp_path: Path
) -> None:
    source = write(tmp_path / "a.csv", table_of(("10.5555/a", "https://example.org/", "X", "")))
    file = store.with_name("store.sqlite3.import")
    with Staging(file, str(source), "", restart=False), pytest.raises(ConfigurationError, match="is running"):
        imports(store, source)


# --- interruptions ------------------------------------------------------------------------------------------------

#: The records of the interrupted import: some twice, some refused.
PARTS = 9
ROWS = 6


def many_files(folder: Path) -> tuple[Path, dict[str, str]]:
    """A folder of files, and what a store must have of them."""
    wanted: dict[str, str] = {}
    for part in range(PARTS):
        rows = [
            (f"10.5555/{part}-{row}", f"https://example.org/{part}/{row}", "X", "2020-01-01") for row in range(ROWS)
        ]
        rows += [("10.5555/twice", f"https://example.org/{part}", "X", f"20{10 + part}-01-01"), ("bad", "", "", "")]
        wanted |= {name.upper(): url for name, url, _, _ in rows[:-1]}
        write(folder / f"{part}.csv", table_of(*rows))
    return folder, wanted


def kill_import(store: Path, source: Path, steps: int) -> None:
    """Import in a process that kills itself after some steps."""
    command = [sys.executable, "-m", "tests.features.registry.interrupted_import", str(store), str(source), str(steps)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("steps", [1, PARTS, PARTS + 5])
def test_after_a_kill_the_next_run_continues_and_nothing_is_lost_or_counted_twice(
    store: Path, tmp_path: Path, steps: int
) -> None:
    source, wanted = many_files(tmp_path / "files")
    kill_import(store, source, steps)
    report = interrupted_import.run(store, str(source))
    assert report.is_continued
    assert {key: url for key, (url, _, _) in content(store).items()} == wanted
    counts = {"read": PARTS * (ROWS + 2), "new": PARTS * ROWS + 1, "repeated": PARTS - 1, "refused": PARTS}
    assert dict(report.counts) == {**dict.fromkeys(report.counts, 0), **counts}
    assert not store.with_name("store.sqlite3.import").exists()


@pytest.mark.parametrize("entries", [2, 40])
def test_names_that_an_upstream_has_answered_are_counted_and_their_records_stay(
    store: Path, tmp_path: Path, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_files, "_BATCH", 5)

    async def put() -> None:
        cache = SqliteStore(store, clock=lambda: NOW, max_bytes=10_000_000, records=find_records())
        for number in range(entries):
            await cache.put(entry(f"10.5555/{number:02}", fetched_at=NOW - 1))
        await cache.close()

    asyncio.run(put())
    rows = [(f"10.5555/{number:02}", "https://example.org/", "X", "") for number in range(0, 40, 2)]
    report = imports(store, write(tmp_path / "a.csv", table_of(*rows)))
    assert report.counts["answered"] == entries // 2
    # Of all 40 names, those without an entry.
    assert count_registry(store, "10.5555/", NOW) == 20 - entries // 2
    assert count_registry(store, "", NOW) == 20 - entries // 2
