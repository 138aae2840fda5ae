"""The token bucket and the leases of one process, second by second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.cache.bucket import Buckets, blocked, take_one
from app.cache.lease import Leases

NOW = 1_700_000_000.0


def test_a_bucket_starts_full_and_gains_its_rate() -> None:
    buckets = Buckets()
    assert [buckets.take("a", NOW, 2, 2) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert buckets.take("a", NOW + 0.25, 2, 2) == 0.25
    assert buckets.take("a", NOW + 0.5, 2, 2) == 0.0
    assert buckets.take("a", NOW + 0.5, 2, 2) == 0.5


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    buckets = Buckets()
    buckets.take("a", NOW, 100, 2)
    assert [buckets.take("a", NOW + 3_600, 100, 2) for _ in range(3)] == [0.0, 0.0, 0.01]


def test_buckets_do_not_share_tokens() -> None:
    buckets = Buckets()
    assert buckets.take("a", NOW, 1, 1) == 0.0
    assert buckets.take("b", NOW, 1, 1) == 0.0


def test_a_clock_set_back_gives_no_tokens_and_blocks_none() -> None:
    empty, _ = take_one(None, NOW, 1, 1, 0)
    bucket, wait = take_one(empty, NOW - 3_600, 1, 1, 0)
    assert wait == 1.0
    assert take_one(bucket, NOW - 3_599, 1, 1, 0)[1] == 0.0


def test_a_block_ends_and_a_longer_one_stays() -> None:
    bucket = blocked(blocked(None, NOW, 30), NOW, 10)
    assert take_one(bucket, NOW, 1, 5, 0)[1] == 30
    assert take_one(bucket, NOW + 30, 1, 5, 0)[1] == 0.0


@given(
    st.lists(st.floats(min_value=0, max_value=2), max_size=200),
    st.floats(min_value=0.1, max_value=20),
    st.integers(min_value=1, max_value=20),
)
def test_no_bucket_ever_gives_more_than_burst_and_rate_allow(pauses: list[float], rate: float, burst: int) -> None:
    bucket, now, given_out = None, 0.0, 0
    for pause in pauses:
        now += pause
        bucket, wait = take_one(bucket, now, rate, burst, 0)
        given_out += wait == 0.0
        assert given_out <= burst + rate * now + 1e-6


def test_a_lease_ends_by_itself() -> None:
    leases = Leases()
    assert leases.take("10.1000/182", "a", NOW, 20)
    assert not leases.take("10.1000/182", "b", NOW + 19.9, 20)
    assert leases.take("10.1000/182", "b", NOW + 20, 20)
    leases.release("10.1000/182", "a")  # too late: it is b's now
    assert not leases.take("10.1000/182", "a", NOW + 21, 20)
