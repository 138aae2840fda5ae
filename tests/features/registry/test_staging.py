"""The file of an import: runs of sorted rows, and the parts that are in them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.registry.import_files import _keep_newest
from doi_proxy.features.registry.import_parts import LeftOut
from doi_proxy.features.registry.import_worker import PartReport
from doi_proxy.features.registry.json_values import RegistryRow
from doi_proxy.features.registry.staging import RUN_SECONDS, RunWriter, Staging
from tests.clock import Clock


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Staging]:
    with Staging(tmp_path / "store.import", "-", "", restart=False) as opened:
        yield opened


@given(
    st.lists(
        st.lists(st.tuples(st.text("ABß😀", max_size=3), st.integers(0, 3), st.just(""), st.text("ab", max_size=1)))
    ),
    st.text("ABß", max_size=1),
)
def test_rows_are_sorted_and_the_newest_of_a_name_is_kept(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[RegistryRow]], after: str
) -> None:
    with Staging(tmp_path_factory.mktemp("run") / "store.import", "-", "", restart=False) as file:
        for number, run in enumerate(runs):
            file.write_run([PartReport(str(number))], list(run))
        wanted = sorted(row for run in runs for row in run if row[0] > after)
        found = list(file.rows(after))
        assert (sorted(found), [row[0] for row in found]) == (wanted, [row[0] for row in wanted])
        counts = Counter[str]()
        newest = {row[0]: row for row in wanted}
        assert list(_keep_newest(file.rows(after), counts)) == list(newest.values())
        assert counts["repeated"] == len(wanted) - len(newest)
        assert [part.name for part in file.reports()] == [str(number) for number in range(len(runs))]


def test_an_import_goes_on_with_what_its_file_has_unless_it_is_dropped(tmp_path: Path) -> None:
    path, row = tmp_path / "store.import", ("10.5555/A", 0, "", "https://example.org/")
    source = tmp_path / "names.csv"
    source.write_text("x")
    with Staging(path, str(source), "", restart=False) as file:
        assert (file.is_continued, file.is_read) == (False, False)
        file.write_run([PartReport("a", read=5, reasons=["record 1: x"])], [row])
        file.note_left_out(LeftOut("b", "is a link"))
        file.finish_reading()
        file.note_progress("10.5555/A", Counter(new=1))
    with Staging(path, str(source), "", restart=False) as file:
        assert (file.is_continued, file.is_read, file.progress()) == (True, True, ("10.5555/A", Counter(new=1)))
        assert [(part.name, part.reasons, part.left_out) for part in file.reports()] == [
            ("a", ["record 1: x"], ""),
            ("b", [], "is a link"),
        ]
        file.forget_left_out()
        assert (len(file.reports()), list(file.rows(""))) == (1, [row])
    with pytest.raises(ConfigurationError, match="is not finished; run it again to continue"):
        Staging(path, str(source), "--format csv", restart=False)
    source.write_text("changed")
    with pytest.raises(ConfigurationError, match="--restart"):
        Staging(path, str(source), "", restart=False)
    with Staging(path, str(source), "--format csv", restart=True) as file:
        assert (file.is_continued, file.reports(), list(file.rows(""))) == (False, [], [])
        file.remove()
    assert list(tmp_path.iterdir()) == [source]


def test_a_damaged_file_is_reported_with_the_remedy(tmp_path: Path, file: Staging) -> None:
    file._execute("INSERT INTO blocks VALUES (1, 0, x'00')")
    with pytest.raises(ConfigurationError, match="--restart begins again"):
        list(file.rows(""))
    (tmp_path / "other.import").write_bytes(b"no database" * 100)
    with pytest.raises(ConfigurationError, match="is damaged; --restart begins again, or else remove it"):
        Staging(tmp_path / "other.import", "-", "", restart=True)
    (tmp_path / "folder.import").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Staging(tmp_path / "folder.import", "-", "", restart=True)


def test_a_name_that_is_not_utf8_is_named(file: Staging) -> None:
    with pytest.raises(ConfigurationError, match="the name of this file is not UTF-8; rename it"):
        file.write_run([PartReport("\udcff.csv")], [])
    with pytest.raises(ConfigurationError, match="the name of this file is not UTF-8; rename it"):
        file.note_left_out(LeftOut("\udcff.csv", "is a link"))


def test_of_a_full_disk_nothing_of_a_run_is_left(tmp_path: Path) -> None:
    path = tmp_path / "store.import"
    with Staging(path, "-", "", restart=False) as file:
        file._execute("PRAGMA max_page_count = 20")
        rows: list[RegistryRow] = [(f"10.5555/{number * number:x}", number, "", "") for number in range(100_000)]
        with pytest.raises(DoiProxyError, match="is full; run the same command again to continue"):
            file.write_run([PartReport("a")], rows)
        assert (file.reports(), list(file.rows(""))) == ([], [])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_rows_are_written_when_they_are_many_or_have_waited(file: Staging) -> None:
    clock = Clock(100.0)
    writer = RunWriter(file, 3, clock)

    def add(part: str, rows: int) -> str:
        """The parts that are in the file after one more."""
        row: RegistryRow = ("10.5555/A", 0, "", "https://example.org/")
        writer.add(PartReport(part, records=rows), msgspec.msgpack.encode([row] * rows))
        return "".join(report.name for report in file.reports())

    assert add("a", 1) == ""
    clock.advance(RUN_SECONDS - 1.0)
    assert add("b", 1) == ""
    clock.advance(1.0)
    assert [add("c", 0), add("d", 1), add("e", 2), add("f", 0)] == ["abc", "abc", "abcde", "abcde"]
