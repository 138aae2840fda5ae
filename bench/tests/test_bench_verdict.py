"""The verdicts of the day."""

from __future__ import annotations

import pytest

from bench.records import answer_of, target_of
from bench.verdict import Answer, Verdict, is_registered, judge, worst_burst

pytestmark = pytest.mark.repository

_KNOWN = next(name for name in ("10.1000/1", "10.1000/2", "10.1000/3") if is_registered(name))
_UNKNOWN = next(name for name in (f"10.1000/{number}" for number in range(200)) if not is_registered(name))
_TARGET = target_of(_KNOWN)
_HIT = "doi-proxy; hit; ttl=12"


@pytest.mark.parametrize(
    ("name", "answer", "verdict"),
    [
        (_KNOWN, Answer(302, _TARGET, _HIT), Verdict.FRESH),
        (_KNOWN, Answer(302, _TARGET, "doi-proxy; fwd=uri-miss; stored; ttl=60"), Verdict.ASKED),
        (_KNOWN, Answer(302, _TARGET, "doi-proxy; hit; ttl=-3; detail=upstream-timeout"), Verdict.STALE),
        (_KNOWN, Answer(200, "", _HIT, answer_of(_KNOWN)), Verdict.FRESH),
        (_KNOWN, Answer(504), Verdict.COULD_NOT_VERIFY),
        (_UNKNOWN, Answer(404), Verdict.NOT_FOUND),
        (_KNOWN, Answer(404), Verdict.WRONG),
        (_KNOWN, Answer(302, "https://elsewhere.example/", _HIT), Verdict.WRONG),
        (_KNOWN, Answer(200, "", _HIT, answer_of("10.1000/other")), Verdict.WRONG),
        (_KNOWN, Answer(500), Verdict.WRONG),
        (_UNKNOWN, Answer(302, target_of(_UNKNOWN), _HIT), Verdict.WRONG),
    ],
)
def test_an_answer_is_judged_by_what_the_upstream_knows(name: str, answer: Answer, verdict: Verdict) -> None:
    assert judge(name, answer) is verdict


@pytest.mark.parametrize(
    ("arrivals", "rate", "burst"),
    [
        ([], 1.0, 0.0),
        ([0.0], 1.0, 1.0),
        ([0.0, 1.0, 2.0], 1.0, 1.0),
        ([0.0, 0.0, 0.0], 1.0, 3.0),
        ([0.0, 0.0, 2.0, 2.0, 2.0], 1.0, 3.0),
        ([0.0, 0.5, 1.0, 1.5], 1.0, 2.5),
    ],
)
def test_the_worst_burst_is_what_a_bucket_would_have_needed(arrivals: list[float], rate: float, burst: float) -> None:
    assert worst_burst(arrivals, rate) == burst
