"""The writing thread by itself: what it gathers, in which parts it writes, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite import writer as writer_module
from doi_proxy.features.sqlite.writer import BATCH, MAX_PENDING, BatchWriter, Change, is_later, split_changes
from tests.cache.entries import NOW, entry
from tests.features.sqlite.sqlite_stores import NEVER

#: Seconds after which a test gives up.
PATIENCE = 60.0
KEY = "10.1000/182"
ENTRIES = st.none() | st.sampled_from([entry(fetched_at=NOW + seconds) for seconds in (0, 1)])
CHANGES = st.builds(
    Change, st.just(KEY), ENTRIES, st.booleans(), unless_newer=st.booleans(), purged_at=st.none() | st.just(NOW)
)


def change(number: int) -> Change:
    return Change(f"10.1000/{number}", entry(f"10.1000/{number}"), announce=False)


class Target:
    """Records what is written. The first write waits for `go`."""

    def __init__(self) -> None:
        self.writes: list[tuple[list[Change], dict[str, float]]] = []
        self.errors: list[Exception] = []
        self.entered, self.go = Event(), Event()

    def __call__(self, changes: list[Change], used: dict[str, float]) -> None:
        self.entered.set()
        assert self.go.wait(PATIENCE)
        self.writes.append((changes, used))
        if self.errors:
            raise self.errors.pop(0)


@contextmanager
def open_writer(write: Callable[[list[Change], dict[str, float]], None]) -> Iterator[BatchWriter]:
    writer = BatchWriter(write, gather=NEVER)
    try:
        yield writer
    finally:
        writer.close()


@contextmanager
def open_busy_writer() -> Iterator[tuple[BatchWriter, Target]]:
    """A writer whose thread is inside its first write, that of change 0."""
    target = Target()
    with open_writer(target) as writer:
        try:
            writer.submit(change(0))
            writer.flush()
            assert target.entered.wait(PATIENCE)
            yield writer, target
        finally:
            target.go.set()


@given(before=CHANGES, after=CHANGES)
def test_a_later_change_wins_and_keeps_the_announcement_and_the_purge_of_the_one_before(
    before: Change, after: Change
) -> None:
    both = after.follow(before)
    if after.unless_newer and is_later(before.entry, after.entry):
        assert both == before
    else:
        purged_at = after.purged_at or before.purged_at
        assert both == replace(after, announce=before.announce or after.announce, purged_at=purged_at)


def test_only_an_entry_that_was_fetched_afterwards_is_later() -> None:
    first, second = entry(), entry(fetched_at=NOW + 1)
    assert is_later(second, first)
    assert not is_later(first, second)
    assert not is_later(first, first)
    assert not is_later(None, first)
    assert not is_later(first, None)


def test_a_change_is_found_until_it_is_written_and_changes_of_one_key_become_one() -> None:
    with open_busy_writer() as (writer, target):
        writer.submit(Change(KEY, None, announce=True))
        writer.submit(Change(KEY, entry(), announce=False))
        expected = Change(KEY, entry(), announce=True)
        assert writer.find(change(0).key) == change(0)
        assert writer.find(KEY) == expected
        assert writer.find("10.1000/183") is None
        done = writer.flush()
        target.go.set()
        done.result(PATIENCE)
        assert writer.find(KEY) is None
        assert [changes for changes, _ in target.writes] == [[change(0)], [expected]]


def test_a_batch_is_written_in_parts_and_the_times_of_use_once() -> None:
    with open_busy_writer() as (writer, target):
        for number in range(1, BATCH + 10):
            writer.submit(change(number))
        writer.record_use(KEY, NOW)
        done = writer.flush()
        target.go.set()
        done.result(PATIENCE)
        assert [(len(changes), used) for changes, used in target.writes] == [(1, {}), (BATCH, {KEY: NOW}), (9, {})]


def test_times_of_use_alone_are_written_by_a_flush() -> None:
    target = Target()
    target.go.set()
    with open_writer(target) as writer:
        assert writer.flush().done()
        writer.record_use(KEY, NOW)
        writer.flush().result(PATIENCE)
        assert target.writes == [([], {KEY: NOW})]


def test_a_full_queue_takes_changes_of_its_own_keys_only() -> None:
    with open_busy_writer() as (writer, target):
        assert all(writer.submit(change(number)) for number in range(1, MAX_PENDING + 1))
        assert not writer.submit(change(MAX_PENDING + 1))
        assert writer.submit(change(1))
        assert writer.dropped == 1
        for number in range(MAX_PENDING + 1):
            writer.record_use(str(number), NOW)
        done = writer.flush()
        target.go.set()
        done.result(PATIENCE)
        assert sum(len(used) for _, used in target.writes) == MAX_PENDING


def test_a_write_that_fails_loses_its_part_and_fails_the_flush() -> None:
    with open_busy_writer() as (writer, target):
        for number in range(1, BATCH + 10):
            writer.submit(change(number))
        done = writer.flush()
        target.errors = [ValueError("the first"), RuntimeError("the disk is full")]
        target.go.set()
        with pytest.raises(StoreError, match="the disk is full"):
            done.result(PATIENCE)
        assert (writer.lost, str(writer.last_error)) == (1 + BATCH, "the disk is full")
        writer.submit(change(0))
        writer.flush().result(PATIENCE)
        assert writer.last_error is None


def test_after_a_failure_an_empty_batch_is_tried_until_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "RETRY", 0.01)
    written = Event()
    errors = [RuntimeError("the disk is read-only")] * 3

    def write(changes: list[Change], used: dict[str, float]) -> None:
        if errors:
            raise errors.pop()
        if not changes:
            written.set()

    with open_writer(write) as writer:
        writer.submit(change(0))
        with pytest.raises(StoreError, match="read-only"):
            writer.flush().result(PATIENCE)
        assert written.wait(PATIENCE)
        writer.flush().result(PATIENCE)
        assert (writer.last_error, writer.lost) == (None, 1)


def test_a_close_writes_what_waits_and_nothing_is_taken_afterwards() -> None:
    target = Target()
    target.go.set()
    with open_writer(target) as writer:
        writer.submit(change(0))
    assert [changes for changes, _ in target.writes] == [[change(0)]]
    assert not writer.submit(change(1))
    assert writer.dropped == 1


def test_a_transaction_has_a_limit_of_rows_and_of_bytes_and_at_least_one_change() -> None:
    changes = [Change(f"10.1000/{number}", None, announce=False) for number in range(7)]
    assert [len(part) for part in split_changes(changes, 3, 1_000)] == [3, 3, 1]
    assert [len(part) for part in split_changes(changes, 100, 2 * len(changes[0].key))] == [2, 2, 2, 1]
    assert [len(part) for part in split_changes(changes, 100, 1)] == [1] * 7
    assert list(split_changes([], 100, 1)) == [[]]
