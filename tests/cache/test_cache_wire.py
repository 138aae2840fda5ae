"""The serialization of an entry: round trips, and the detection of damage."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from doi_proxy.cache.entry import FOREVER, MAX_SKEW, Entry, bound_times
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.store.stored_entry import pack, unpack
from handle_protocol.referral import Answer, ResponseCode
from tests.cache.entries import NOW, entry, missing, values, verified
from tests.table import table

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)
times = st.floats(min_value=0, max_value=4e9)
absent = st.sampled_from([ResponseCode.HANDLE_NOT_FOUND, ResponseCode.VALUES_NOT_FOUND])
answers = st.builds(
    Answer, st.just(ResponseCode.SUCCESS), st.builds(values, texts), is_verified=st.booleans()
) | st.builds(Answer, absent, is_verified=st.booleans())
entries = st.builds(Entry, texts.map(lambda t: "10.1000/" + t).map(str.upper), answers, times, times, times)


@given(entries)
def test_unpack_returns_the_packed_entry(packed: Entry) -> None:
    read = unpack(packed.key, pack(packed))
    assert read is not None
    assert (read.key, read.answer, read.fetched_at) == (packed.key, packed.answer, packed.fetched_at)
    # Expiries are stored in whole seconds after the answer was fetched, rounded down.
    assert 0 <= packed.fresh_until - read.fresh_until <= 1
    assert 0 <= packed.stale_until - read.stale_until <= 1


def test_whole_seconds_and_an_expiry_that_never_comes_are_stored_unchanged() -> None:
    for packed in (entry(), replace(entry(), stale_until=FOREVER), missing()):
        assert unpack(packed.key, pack(packed)) == packed


@pytest.mark.parametrize("packed", [entry(), missing(), entry(url="x" * 20_000)])
def test_the_mark_of_a_verified_answer_takes_no_byte(packed: Entry) -> None:
    assert unpack(packed.key, pack(verified(packed))) == verified(packed)
    assert len(pack(verified(packed))) == len(pack(packed))


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_is_damage(place: int, bit: int) -> None:
    data = bytearray(pack(entry()))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(StoreError):
        unpack("10.1000/182", bytes(data))


@given(st.binary(max_size=200))
def test_other_bytes_are_damage(data: bytes) -> None:
    with pytest.raises(StoreError):
        unpack("10.1000/182", data)


@pytest.mark.parametrize("data", ["text", 1, 1.5, None])
def test_data_that_is_not_bytes_is_damage(data: object) -> None:
    with pytest.raises(DamagedEntry):
        unpack("10.1000/182", data)


@given(entries, entries)
def test_an_entry_under_another_key_is_damaged(one: Entry, other: Entry) -> None:
    assume(one.key != other.key)
    with pytest.raises(DamagedEntry):
        unpack(other.key, pack(one))


@table("odd", [float("inf"), float("-inf"), float("nan"), 1e13, -1.0])
@table("member", ["fetched_at", "fresh_until", "stale_until"])
def test_times_that_cannot_be_are_damage(member: str, odd: float) -> None:
    with pytest.raises(DamagedEntry):
        unpack("10.1000/182", pack(replace(entry(), **{member: odd})))


# --- The limits on the times of an entry from a store ----------------------------------------------------------------


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
