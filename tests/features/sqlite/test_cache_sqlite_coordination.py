"""The coordination file by itself: damaged leases, and transactions between two processes' connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.features.sqlite.coordination import CoordinationFile
from doi_proxy.features.sqlite.file import find_cause
from doi_proxy.rationing.token_bucket import Bucket, take_token
from tests.cache.entries import NOW
from tests.clock import Clock

Files = tuple[CoordinationFile, CoordinationFile]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3.coordination"


@pytest.fixture
def files(path: Path) -> Iterator[Files]:
    """The same file, as two processes open it."""
    with closing(CoordinationFile(path)) as here, closing(CoordinationFile(path)) as there:
        yield here, there


def take_one(bucket: Bucket | None, now: float) -> tuple[Bucket, float]:
    """Take one token of a bucket that has room for one."""
    return take_token(bucket, now, rate=1, burst=1)


def test_the_clock_is_read_while_no_other_process_can_write(path: Path, files: Files) -> None:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:

        def read_clock() -> float:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            return NOW

        assert files[0].change_bucket("upstream", read_clock, take_one) == 0.0


def test_a_step_that_fails_changes_nothing_and_leaves_the_file_unlocked(files: Files, clock: Clock) -> None:
    here, there = files

    def fail() -> float:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        here.change_bucket("upstream", fail, take_one)
    assert there.change_bucket("upstream", clock, take_one) == 0.0


def test_a_lease_is_not_taken_from_a_process_that_looked_at_the_clock_later(files: Files) -> None:
    here, there = files
    assert here.lease("10.1000/182", "here", NOW + 0.01, 20)
    assert not there.lease("10.1000/182", "there", NOW, 20)


@pytest.mark.parametrize("odd", ["text", b"blob"])
def test_a_lease_that_ends_at_no_number_is_free(path: Path, files: Files, odd: object) -> None:
    here, there = files
    assert here.lease("10.1000/182", "here", NOW, 20)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE leases SET ends = ?", (odd,))
    assert there.lease("10.1000/182", "there", NOW, 20)


def test_a_full_disk_is_reported_as_such(path: Path, files: Files) -> None:
    files[0]._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as raised:
        files[0].change_bucket("x" * 100_000, lambda: NOW, take_one)
    assert find_cause(raised.value) == "store-full"
    files[0]._connection.execute("PRAGMA max_page_count = 1000")
    assert files[0].change_bucket("upstream", lambda: NOW, take_one) == 0.0
