"""The coordination file by itself: leases, buckets and their transactions between two processes' connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.features.sqlite.coordination import CoordinationFile
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


def test_a_lease_has_one_owner_until_it_ends_or_is_released(files: Files) -> None:
    here, there = files
    assert here.lease("10.1000/182", "here", NOW, 20)
    assert not there.lease("10.1000/182", "there", NOW + 19.9, 20)
    assert there.lease("10.1000/182", "there", NOW + 20, 20)
    here.release("10.1000/182", "here", NOW + 21)
    assert not here.lease("10.1000/182", "here", NOW + 21, 20)
    there.release("10.1000/182", "there", NOW + 21)
    assert here.lease("10.1000/182", "here", NOW + 21, 20)


def test_a_lease_from_before_the_clock_was_set_back_is_free(files: Files) -> None:
    here, there = files
    assert here.lease("10.1000/182", "here", NOW + 1, 20)
    assert there.lease("10.1000/182", "there", NOW, 20)


def test_the_tokens_of_a_bucket_are_shared_and_those_of_another_are_not(files: Files, clock: Clock) -> None:
    here, there = files
    assert here.take("upstream", clock, 1, 3, 0, 2) == 0.0
    assert there.take("upstream", clock, 1, 3, 0, 2) == 1.0
    assert there.take("agencies", clock, 1, 3, 0, 3) == 0.0
    assert there.take("upstream", clock, 1, 3, 1, 1) == 1.0
    clock.advance(1)
    assert there.take("upstream", clock, 1, 3, 0, 2) == 0.0


def test_a_back_off_empties_the_bucket_for_both(files: Files, clock: Clock) -> None:
    here, there = files
    here.back_off("upstream", clock, 30)
    assert there.take("upstream", clock, 1, 5, 0, 1) == 31.0
    clock.advance(31)
    assert there.take("upstream", clock, 1, 5, 0, 1) == 0.0


def test_the_clock_is_read_while_no_other_process_can_write(path: Path, files: Files) -> None:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:

        def read_clock() -> float:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")
            return NOW

        assert files[0].take("upstream", read_clock, 1, 1, 0, 1) == 0.0
        files[0].back_off("upstream", read_clock, 1)


def test_a_step_that_fails_changes_nothing_and_leaves_the_file_unlocked(files: Files, clock: Clock) -> None:
    here, there = files

    def fail() -> float:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        here.take("upstream", fail, 1, 1, 0, 1)
    with pytest.raises(RuntimeError):
        here.back_off("upstream", fail, 60)
    assert there.take("upstream", clock, 1, 1, 0, 1) == 0.0


def test_a_file_that_is_not_a_database_is_replaced_and_a_symbolic_link_is_refused(path: Path, clock: Clock) -> None:
    path.write_bytes(b"not a database" * 1_000)
    with closing(CoordinationFile(path)) as replaced:
        assert replaced.take("upstream", clock, 1, 1, 0, 1) == 0.0
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        CoordinationFile(link)
