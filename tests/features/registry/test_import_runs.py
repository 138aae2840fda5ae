"""Sorted runs on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry import import_worker
from doi_proxy.features.registry.import_worker import (
    MAX_MERGED,
    RUN_SECONDS,
    PartReport,
    Run,
    RunHeader,
    RunWriter,
    WorkerOptions,
    keep_newest,
    limit_runs,
    merge_rows,
    next_session,
    open_runs,
    run_path,
    write_run,
)
from doi_proxy.features.registry.sqlite_blocks import RegistryRow
from tests.clock import Clock


def blocks(rows: list[RegistryRow], size: int) -> Iterator[list[RegistryRow]]:
    """Rows in blocks of a size."""
    return iter([rows[at : at + size] for at in range(0, len(rows), size)])


@given(
    st.lists(
        st.lists(st.tuples(st.text("ABß😀", max_size=3), st.integers(0, 3), st.just(""), st.text("ab", max_size=1)))
    ),
    st.integers(1, 4),
)
def test_a_merge_has_every_row_in_the_order_of_keys_and_equal_keys_in_one_block(
    runs: list[list[RegistryRow]], size: int
) -> None:
    merged = list(merge_rows([blocks(sorted(run), size) for run in runs]))
    rows = [row for block in merged for row in block]
    assert sorted(rows) == sorted(row for run in runs for row in run)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    keys = [{row[0] for row in block} for block in merged]
    assert sum(map(len, keys)) == len(set().union(*keys))


def test_the_order_of_keys_is_that_of_their_bytes_in_the_store() -> None:
    keys = sorted(["10.5555/\uffff", "10.5555/\U00010000", "10.5555/A", "10.5555/\u00e9", "10.5555/_"])
    assert keys == sorted(keys, key=lambda key: key.encode())


def test_of_equal_keys_the_newest_row_is_kept_whatever_their_order() -> None:
    rows: list[RegistryRow] = [
        ("A", 5, "", "x"),
        ("A", 7, "", "a"),
        ("A", 7, "", "b"),
        ("A", 6, "", "z"),
        ("B", 1, "", ""),
    ]
    assert keep_newest(rows) == ([("A", 7, "", "b"), ("B", 1, "", "")], 3)
    assert keep_newest(rows[::-1])[0] == [("B", 1, "", ""), ("A", 7, "", "b")]


def test_a_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_worker, "BLOCK_ROWS", 2)
    rows: list[RegistryRow] = [
        (f"10.5555/{number}", number, "Crossref", f"https://example.org/{number}") for number in range(5)
    ]
    header = RunHeader([PartReport("a", read=5, reasons=["record 1: x"])], 5)
    write_run(run_path(tmp_path, 1, 0, 1), header, [rows])
    (run,) = open_runs(tmp_path)
    assert run.header == header
    assert [len(block) for block in run.blocks()] == [2, 2, 1]
    assert [row for block in run.blocks() for row in block] == rows


def test_what_a_killed_process_left_is_removed_and_sessions_are_new(tmp_path: Path) -> None:
    write_run(run_path(tmp_path, 3, 1, 1), RunHeader([], 0), [])
    write_run(run_path(tmp_path, 4, 0, 1), RunHeader([], 0, ["0003-01-000001.run", "0001-01-000001.run"]), [])
    (tmp_path / "0004-00-000002.run.partial").write_bytes(b"x")
    assert next_session(tmp_path) == 5
    assert [run.path.name for run in open_runs(tmp_path)] == ["0004-00-000001.run"]
    assert [path.name for path in tmp_path.iterdir()] == ["0004-00-000001.run"]


def test_a_damaged_run_is_reported_with_the_remedy(tmp_path: Path) -> None:
    path = run_path(tmp_path, 1, 0, 1)
    path.write_bytes(b"\x03\x00\x00\x00abc")
    with pytest.raises(ConfigurationError, match="--restart begins again"):
        Run(path)


def test_many_runs_are_merged_into_few(tmp_path: Path) -> None:
    count = MAX_MERGED + 3
    for number in range(count):
        header = RunHeader([PartReport(f"part {number}", read=1)], 1)
        write_run(run_path(tmp_path, 1, 0, number), header, [[(f"K{number:03}", 0, "", "")]])
    runs = limit_runs(tmp_path, open_runs(tmp_path), 2)
    assert len(runs) == 4 == len(list(tmp_path.iterdir()))
    assert sorted(part.name for run in runs for part in run.header.parts) == sorted(f"part {n}" for n in range(count))
    rows = [row[0] for block in merge_rows([run.blocks() for run in runs]) for row in block]
    assert rows == [f"K{number:03}" for number in range(count)]


def test_rows_are_written_when_they_are_many_or_have_waited_for_ten_seconds(tmp_path: Path) -> None:
    clock = Clock(100.0)
    writer = RunWriter(WorkerOptions(tmp_path, 1, 0, None, 0, 0, run_rows=3), clock)
    row: RegistryRow = ("10.5555/A", 0, "", "https://example.org/")

    def runs() -> list[int]:
        return [run.header.rows for run in open_runs(tmp_path)]

    assert writer.seconds_left() is None
    writer.add(PartReport("a"), [row])
    clock.advance(RUN_SECONDS - 1.0)
    writer.add(PartReport("b"), [row])
    assert (runs(), writer.seconds_left()) == ([], 1.0)
    clock.advance(1.0)
    writer.add(PartReport("c"), [])
    assert (runs(), writer.seconds_left()) == ([2], None)
    # The seconds of the next run begin with its first part.
    clock.advance(100.0)
    writer.add(PartReport("d"), [row])
    assert runs() == [2]
    writer.add(PartReport("e"), [row, row])
    assert runs() == [2, 3]
    writer.write()
    assert [part.name for run in open_runs(tmp_path) for part in run.header.parts] == list("abcde")
