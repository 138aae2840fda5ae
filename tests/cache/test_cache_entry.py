"""The limits on the times of an entry from a store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doi_proxy.cache.entry import MAX_SKEW, bound_times, loses_proof
from tests.cache.entries import NOW, entry, missing, verified

CEILING = 86_400.0
DAY = 86_400.0


def test_an_entry_within_the_ceiling_stays_the_same_object() -> None:
    kept = entry()
    assert bound_times(kept, NOW, CEILING) is kept
    assert bound_times(kept, NOW + 40 * DAY, CEILING) is kept


def test_an_entry_beyond_the_ceiling_is_fresh_until_the_ceiling() -> None:
    bounded = bound_times(entry(ttl=30 * DAY), NOW + 10, CEILING)
    assert bounded == replace(entry(ttl=30 * DAY), fresh_until=NOW + CEILING)


def test_an_answer_of_a_machine_whose_clock_is_ahead_is_fresh_for_the_ceiling_from_now() -> None:
    bounded = bound_times(entry(fetched_at=NOW + MAX_SKEW), NOW, CEILING)
    assert bounded.fresh_until == NOW + CEILING


def test_a_record_fetched_in_the_future_is_stale_and_the_oldest_of_all() -> None:
    future = entry(fetched_at=NOW + 2 * DAY)
    bounded = bound_times(future, NOW, CEILING)
    assert bounded == replace(future, fetched_at=0.0, fresh_until=0.0)
    assert bounded.is_usable(NOW)


def test_a_not_found_of_the_future_may_not_be_used() -> None:
    assert not bound_times(missing(fetched_at=NOW + 2 * DAY), NOW, CEILING).is_usable(NOW)


def test_a_not_found_is_never_usable_for_longer_than_it_is_fresh() -> None:
    bounded = bound_times(missing(), NOW, 10.0)
    assert (bounded.fresh_until, bounded.usable_until) == (NOW + 10, NOW + 10)


@pytest.mark.parametrize("step", [-2 * DAY, -3_600.0, -61.0, -1.0, 0.0, 5.0])
def test_no_entry_is_fresh_beyond_the_ceiling_after_any_step_of_the_clock(step: float) -> None:
    for known in (entry(), entry(ttl=60), missing(), entry(ttl=400 * DAY)):
        assert bound_times(known, NOW + step, CEILING).fresh_until <= NOW + step + CEILING


def test_a_fresh_proof_is_lost_to_a_verified_entry_alone() -> None:
    known = verified(entry(ttl=60))
    assert loses_proof(known, entry(url="http://other.example/"), NOW)
    assert loses_proof(known, missing(known.key), NOW)
    assert not loses_proof(known, verified(entry()), NOW)
    assert not loses_proof(known, entry(), NOW + 60)
    assert not loses_proof(verified(entry(fetched_at=NOW + MAX_SKEW + 1)), entry(), NOW)
    assert not loses_proof(entry(), entry(), NOW)
    assert not loses_proof(None, entry(), NOW)
