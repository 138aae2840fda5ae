"""The freshness that counts the seconds is that of an answer that is sent once, and its dates are correct."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.resolver.resolution import Chain, Origin, Resolution
from doi_proxy.web.freshness import Countdown, Freshness, JsonCountdown, PageCountdown, RedirectCountdown
from doi_proxy.web.request_path import Header, header_lines, http_date
from handle_protocol.referral import Answer, ResponseCode

NAME = HandleName("10.1000/182")
NOW = 1_700_000_000
KINDS: list[tuple[type, Callable[[Freshness], Callable[[Chain, int], tuple[Header, ...]]]]] = [
    (RedirectCountdown, lambda freshness: freshness.of_redirect_hit),
    (JsonCountdown, lambda freshness: freshness.of_json_hit),
    (PageCountdown, lambda freshness: freshness.of_page),
]


@given(st.integers(0, int(FOREVER)))
def test_a_date_is_that_of_the_standard_library(seconds: int) -> None:
    assert http_date(seconds) == formatdate(seconds, usegmt=True).encode()


@pytest.mark.parametrize(("countdown", "write"), KINDS, ids=["redirect", "json", "page"])
@given(
    # An entry from further ahead is of a clock that was set back, and has no countdown.
    age=st.floats(-1, 100_000),
    left=st.floats(0, 10**8),
    max_age=st.integers(0, 10**6).map(lambda halves: halves / 2),
    is_verified=st.booleans(),
    later=st.integers(0, 100),
)
def test_the_lines_are_those_of_the_headers_in_each_second(
    countdown: Callable[[int], Countdown],
    write: Callable[[Freshness], Callable[[Chain, int], tuple[Header, ...]]],
    age: float,
    left: float,
    max_age: float,
    is_verified: bool,
    later: int,
) -> None:
    answer = Answer(ResponseCode.SUCCESS, b"[]", is_verified=is_verified)
    fresh_until = NOW + later + left
    entry = Entry(NAME.key, answer, NOW - age, fresh_until, fresh_until + 60)
    counting = countdown(int(max_age))
    hit = Resolution(NAME, entry, Origin.HIT)
    pattern = counting.pattern(hit)
    for now in (NOW, NOW + later):
        headers = write(Freshness(max_age))(Chain(hit), now)
        assert pattern % counting.numbers(hit, now) == header_lines(headers)
