"""The leases and token buckets of one process, in its memory: one owner at a time, an end, and a bound."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from app.cache.memory import MemoryStore
from tests.cache.entries import NOW
from tests.clock import Clock

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a method that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("it waits")


class Leases:
    """The leases of a memory store, at the time of each call."""

    def __init__(self) -> None:
        self._clock = Clock(NOW)
        self._store = MemoryStore(1_000, clock=self._clock)

    def take(self, key: str, owner: str, now: float, seconds: float) -> bool:
        self._clock.now = now
        return run(self._store.lease(key, owner, seconds))

    def renew(self, key: str, owner: str, now: float, seconds: float) -> None:
        self._clock.now = now
        run(self._store.renew(key, owner, seconds))

    def release(self, key: str, owner: str) -> None:
        run(self._store.release(key, owner))


def test_a_lease_ends_by_itself() -> None:
    leases = Leases()
    assert leases.take("10.1000/182", "a", NOW, 20)
    assert not leases.take("10.1000/182", "b", NOW + 19.9, 20)
    assert leases.take("10.1000/182", "b", NOW + 20, 20)
    leases.release("10.1000/182", "a")  # too late: it is b's now
    assert not leases.take("10.1000/182", "a", NOW + 21, 20)


def test_a_renewed_lease_ends_later() -> None:
    leases = Leases()
    assert leases.take("10.1000/182", "a", NOW, 20)
    leases.renew("10.1000/182", "a", NOW + 10, 20)
    leases.renew("10.1000/183", "a", NOW + 10, 20)
    assert not leases.take("10.1000/182", "b", NOW + 29.9, 20)
    assert leases.take("10.1000/182", "b", NOW + 30, 20)
    assert leases.take("10.1000/183", "b", NOW + 10, 20)


def test_the_owner_itself_cannot_take_its_lease_twice() -> None:
    leases = Leases()
    assert leases.take("10.1000/182", "a", NOW, 20)
    assert not leases.take("10.1000/182", "a", NOW, 20)
    assert leases.take("10.1000/183", "a", NOW, 20)


def test_a_released_lease_is_free_and_a_missing_one_is_no_error() -> None:
    leases = Leases()
    leases.release("10.1000/182", "a")
    assert leases.take("10.1000/182", "a", NOW, 20)
    leases.release("10.1000/182", "a")
    assert leases.take("10.1000/182", "b", NOW, 20)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans()), max_size=40))
def test_at_one_time_a_key_has_at_most_one_owner(steps: list[tuple[str, str, bool]]) -> None:
    leases, owners = Leases(), dict[str, str]()
    for owner, key, takes in steps:
        if takes:
            assert leases.take(key, owner, NOW, 20) == (key not in owners)
            owners.setdefault(key, owner)
        else:
            leases.release(key, owner)
            if owners.get(key) == owner:
                del owners[key]


def test_one_process_remembers_10000_leases_and_forgets_the_oldest() -> None:
    leases = Leases()
    for name in range(10_000):
        assert leases.take(str(name), "a", NOW, 20)
    assert not leases.take("0", "b", NOW, 20)
    assert leases.take("10000", "a", NOW, 20)
    assert not leases.take("9999", "b", NOW, 20)
    assert not leases.take("1", "b", NOW, 20)
    assert leases.take("0", "b", NOW, 20)


def test_a_lease_that_is_taken_again_counts_as_new() -> None:
    leases = Leases()
    for name in range(10_000):
        leases.take(str(name), "a", NOW, 20)
    leases.take("0", "b", NOW + 20, 20)
    leases.take("10000", "b", NOW + 20, 20)
    assert not leases.take("0", "c", NOW + 21, 20)


def test_a_lease_from_before_the_clock_was_set_back_is_free() -> None:
    leases = Leases()
    assert leases.take("10.1/A", "a", NOW, 20)
    assert not leases.take("10.1/A", "b", NOW, 20)
    assert leases.take("10.1/A", "b", NOW - 1, 20)


def test_buckets_do_not_share_tokens() -> None:
    store = MemoryStore(1_000, clock=Clock(NOW))
    assert [run(store.take("a", 1, 1)) for _ in range(2)] == [0.0, 1.0]
    assert run(store.take("b", 1, 1)) == 0.0


def test_a_bucket_that_was_pushed_out_is_full_again() -> None:
    store = MemoryStore(1_000, clock=Clock(NOW))
    for name in ("a", *map(str, range(10_000))):
        run(store.take(name, 1, 1))
    assert run(store.take("9999", 1, 1)) == 1.0
    assert run(store.take("a", 1, 1)) == 0.0
