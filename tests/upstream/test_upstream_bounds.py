"""The bounds of what is asked of an upstream and read of it, as numbers: a changed bound is a changed promise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from doi_names.name import HandleName
from doi_proxy.assembly.features import installed
from doi_proxy.errors import RequestTooLarge, UpstreamRefused, UpstreamUnreachable
from doi_proxy.upstream.budget import MAX_WAITING
from doi_proxy.upstream.client import translate_error
from doi_proxy.upstream.guard import list_outcomes
from doi_proxy.upstream.source import CONTROL_NAME, Priority, UpstreamQuery, read_retry_after
from handle_protocol.referral import ResponseCode
from tests.fake_upstream import FakeUpstream
from tests.parts import QUEUE_PATIENCE, usual_api

pytestmark = pytest.mark.anyio

NAME = "10.1234/Name"
NOW = 1_800_000_000.0


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as fake:
        fake.put(NAME, url="https://target.example/")
        yield fake


async def ask(upstream: FakeUpstream) -> ResponseCode:
    api = usual_api(upstream.url, clock=lambda: NOW, max_answer_bytes=1_000)
    try:
        return (await api.fetch(UpstreamQuery(HandleName(NAME)))).code
    finally:
        await api.aclose()


async def test_three_redirects_are_followed_and_a_fourth_is_not(upstream: FakeUpstream) -> None:
    upstream.fault(NAME, "redirect", count=3)
    assert await ask(upstream) is ResponseCode.SUCCESS
    upstream.fault(NAME, "redirect", count=4)
    with pytest.raises(UpstreamRefused, match="redirects too often"):
        await ask(upstream)
    assert upstream.queries(NAME) == 4 + 4


async def test_one_question_about_agencies_has_at_most_50_names(upstream: FakeUpstream) -> None:
    upstream.agency("10.5240", "EIDR")
    api = usual_api(upstream.url)
    rows = await api.registration_agencies(["10.5240"] * 50)
    assert len(rows) == 50
    with pytest.raises(RequestTooLarge, match="at most 50 names"):
        await api.registration_agencies(["10.5240"] * 51)
    await api.aclose()


def test_an_error_of_a_library_is_repeated_up_to_200_characters() -> None:
    failure = translate_error(OSError("x" * 300))
    assert isinstance(failure, UpstreamUnreachable)
    assert failure.detail == "OSError: " + "x" * (200 - len("OSError: "))


@pytest.mark.parametrize(
    ("value", "seconds"), [("3600", 3600.0), ("3599", 3599.0), ("000000120", 120.0), ("0000000120", 3600.0)]
)
def test_a_wish_has_at_most_nine_digits_and_is_at_most_an_hour(value: str, seconds: float) -> None:
    assert read_retry_after(value, NOW) == seconds


async def test_people_wait_five_seconds_for_the_budget_and_others_a_minute() -> None:
    assert QUEUE_PATIENCE == {Priority.PERSON: 5.0, Priority.BULK: 60.0, Priority.BACKGROUND: 60.0}
    assert MAX_WAITING == 10_000


async def test_the_control_question_is_about_the_prefix_of_all_dois() -> None:
    assert CONTROL_NAME.text == "0.NA/10"


async def test_the_words_of_outcomes_stay_the_same() -> None:
    """They are labels of metrics, which dashboards and alerts name."""
    assert installed()
    assert {
        "found", "not_found", "no_values", "agencies", "cancelled", "upstream-timeout", "upstream-unreachable",
        "upstream-refused", "upstream-bad-answer", "breaker-open", "upstream-paused", "upstream-loop", "budget-spent",
        "places-full", "upstream-slow", "resources-short", "share-spent", "sealed", "not-asked", "malformed-message",
        "answer-mismatch", "signature-invalid",
        "service-not-found", "handle-server-unreachable",
    } == list_outcomes()  # fmt: skip
