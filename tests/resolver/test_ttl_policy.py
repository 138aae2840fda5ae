"""How long an answer is fresh, and how long it may be served after that."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.referral import Answer, ResponseCode
from tests.parts import usual_ttl_policy
from tests.table import table

#: 2023-11-14T22:13:20Z.
NOW = 1_700_000_000.0
DAY = 86400.0


def record(*ttls: object) -> Answer:
    """A record whose values have these TTLs; None for a value that has none."""
    values = [{"index": 1, "type": "URL", "data": "x", **({} if ttl is None else {"ttl": ttl})} for ttl in ttls]
    return Answer(ResponseCode.SUCCESS, json.dumps(values).encode())


@table(
    ("ttls", "seconds"),
    [
        ((60,), 60),
        ((86400,), DAY),
        ((None,), DAY),
        ((7200, 30), 30),
        ((30, 7200), 30),
        ((None, 60), 60),
        ((0,), 0),
        ((7200, 0), 0),
        ((-1,), 0),
        ((-(10**12),), 0),
        ((86401,), DAY),
        ((10**15,), DAY),
        ((1.5,), 1.5),
        (("2023-11-14T22:14:20Z",), 60),
        (("2023-11-14T23:14:20+01:00",), 60),
        (("2023-11-14T22:14:20",), 60),
        (("2023-11-14T22:13:20Z",), 0),
        (("1970-01-01T00:00:00Z",), 0),
        (("2030-01-01T00:00:00Z",), DAY),
        (("2030-01-01T00:00:00Z", 60), 60),
        (("2023-11-14T22:13:50Z", 60), 30),
    ],
)
def test_a_record_is_fresh_until_the_first_of_its_values_ends(ttls: tuple[object, ...], seconds: float) -> None:
    entry = usual_ttl_policy(ceiling=DAY).entry("10.1000/182", record(*ttls), NOW)
    assert entry.fresh_until == NOW + seconds
    assert (entry.key, entry.fetched_at) == ("10.1000/182", NOW)


@table(
    ("floor", "ceiling", "ttl", "seconds"),
    [
        (0, DAY, 60, 60),
        (300, DAY, 60, 300),
        (300, DAY, 0, 300),
        (300, DAY, -5, 300),
        (300, DAY, 301, 301),
        (300, DAY, "1970-01-01T00:00:00Z", 300),
        (0, 100, 60, 60),
        (0, 100, 101, 100),
        (0, 100, "2030-01-01T00:00:00Z", 100),
        (0, 0, 60, 0),
        (300, 100, 60, 100),
        (300, 100, 600, 100),
    ],
)
def test_the_operator_bounds_the_ttl_and_the_ceiling_wins(
    floor: float, ceiling: float, ttl: object, seconds: float
) -> None:
    policy = usual_ttl_policy(floor=floor, ceiling=ceiling)
    assert policy.entry("X", record(ttl), NOW).fresh_until == NOW + seconds


def test_a_record_may_be_served_stale_for_the_grace() -> None:
    entry = usual_ttl_policy(grace=1000).entry("X", record(60), NOW)
    assert entry.stale_until == NOW + 1060
    assert [entry.is_usable(NOW + 1059.9), entry.is_usable(NOW + 1060)] == [True, False]


def test_a_record_without_a_ttl_to_live_may_still_be_served_stale() -> None:
    entry = usual_ttl_policy(grace=1000).entry("X", record(0), NOW)
    assert (entry.is_fresh(NOW), entry.is_usable(NOW + 999)) == (False, True)


@pytest.mark.parametrize("code", [ResponseCode.HANDLE_NOT_FOUND, ResponseCode.VALUES_NOT_FOUND])
@pytest.mark.parametrize("negative", [0.0, 60.0])
def test_what_is_missing_is_kept_for_the_negative_ttl_and_never_served_stale(
    code: ResponseCode, negative: float
) -> None:
    entry = usual_ttl_policy(floor=500, negative=negative, grace=1000).entry("10.1/X", Answer(code), NOW)
    assert (entry.fresh_until, entry.stale_until) == (NOW + negative, NOW + negative)


def test_an_absent_prefix_is_kept_during_the_grace_and_never_served_stale() -> None:
    entry = usual_ttl_policy(negative=60, grace=1000).entry("10.1", Answer(ResponseCode.HANDLE_NOT_FOUND), NOW)
    assert [entry.is_usable(NOW + 59.9), entry.is_usable(NOW + 60)] == [True, False]
    assert [entry.is_kept(NOW + 1059.9), entry.is_kept(NOW + 1060)] == [True, False]


@given(
    ttls=st.lists(st.integers(-(10**9), 10**9) | st.none(), min_size=1, max_size=5),
    floor=st.floats(0, 1e6),
    ceiling=st.floats(0, 1e6),
    grace=st.floats(0, 1e7),
)
def test_freshness_never_begins_in_the_past_nor_passes_the_ceiling(
    ttls: list[int | None], floor: float, ceiling: float, grace: float
) -> None:
    entry = usual_ttl_policy(floor=floor, ceiling=ceiling, grace=grace).entry("X", record(*ttls), NOW)
    assert NOW <= entry.fresh_until <= NOW + ceiling + 1e-6
    assert entry.fresh_until >= NOW + min(floor, ceiling) - 1e-6
    assert entry.stale_until >= entry.fresh_until
