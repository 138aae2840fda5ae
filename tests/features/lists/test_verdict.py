"""The verdict on an answer or a failure. No store and no upstream take part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from msgspec import structs

from doi_names.name import HandleName
from doi_names.suggestion import Reading, Suggestion
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import (
    AliasChainTooLong,
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    DoiProxyError,
    InvalidAnswer,
    NotCached,
    NotInBundle,
    PrefixDenied,
    PrefixInactive,
    Quota,
    ShareSpent,
    UpstreamPaused,
    UpstreamRefused,
    UpstreamTimeout,
)
from doi_proxy.features.lists.verdict import (
    FIELDS,
    Judgement,
    JudgementMemory,
    ListRow,
    Verdict,
    explain_other_name,
    is_worth_waiting,
    judge_destination,
    judge_failure,
    judge_target,
    not_a_doi,
    read_row,
)
from doi_proxy.resolver.destination import Destination, Kind
from doi_proxy.resolver.resolution import Origin, Resolution, Tombstone
from doi_proxy.resolver.target import Target
from handle_protocol.referral import Answer, ResponseCode
from tests.table import table

NAME: Final = HandleName("10.5555/Name")
OTHER: Final = HandleName("10.5555/other")
TARGET: Final = Target("http://example.org/%20", "http://example.org/ ")


def resolution(name: HandleName = NAME, origin: Origin = Origin.HIT, **more: Any) -> Resolution:
    code = more.pop("code", ResponseCode.SUCCESS)
    fetched_at = 0.0 if origin is Origin.LOCAL else 1_000.0
    entry = Entry(name.key, Answer(code, msgspec.json.encode([])), fetched_at, more.pop("until", 2_000.0), 3_000.0)
    return Resolution(name, entry, origin, **more)


def test_the_members_of_a_row_have_their_public_names_and_order() -> None:
    row = ListRow(
        "doi:10.5555/name.",
        "10.5555/name.",
        Verdict.RESOLVED,
        "http://a/",
        ra="Crossref",
        age=7,
        stale=True,
        message="m",
        line=3,
        key="smith2020",
    )
    expected = {
        "input": "doi:10.5555/name.",
        "doi": "10.5555/name.",
        "verdict": "resolved",
        "url": "http://a/",
        "ra": "Crossref",
        "age": 7,
        "stale": True,
        "message": "m",
        "line": 3,
        "key": "smith2020",
        "reason": None,
    }
    assert row.members() == expected
    assert tuple(row.members()) == FIELDS
    better = Suggestion(HandleName("10.5555/name"), "trailing-punctuation")
    suggested = replace(row, suggestions=(better,), best=Reading(better.doi, "sure", better.rule), echo=5)
    assert suggested.members() == expected | {
        "suggestions": [{"doi": "10.5555/name", "rule": "trailing-punctuation", "exists": None}],
        "best": {"doi": "10.5555/name", "confidence": "sure", "rule": "trailing-punctuation"},
        "echo": 5,
    }
    assert [read_row(one.members()) for one in (row, suggested)] == [row, suggested]


ROW: Final = not_a_doi("x", "m").members()


@table(
    "value",
    [
        {}, [], 1, "text", None, ROW | {"verdict": "other"}, ROW | {"suggestions": 1},
        ROW | {"suggestions": ["10.5555/name"]}, ROW | {"suggestions": [{"doi": "", "rule": "x"}]},
        ROW | {"suggestions": [{"doi": [1], "rule": "x"}]}, ROW | {"suggestions": [{"doi": "10.5555/name"}]},
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_row_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        read_row(value)


def test_a_target_is_resolved_with_the_time_of_its_record() -> None:
    expected = Judgement(Verdict.RESOLVED, TARGET.location, 1_000.0, fresh_until=2_000.0)
    assert judge_destination(Destination(Kind.TARGET, resolution(), target=TARGET)) == expected
    assert judge_target(resolution(), TARGET) == expected
    assert expected.age(1_001.9) == 1
    assert expected.age(900.0) == 0


def test_the_target_of_an_alias_names_the_other_name_and_ends_with_the_first_record() -> None:
    chain = structs.replace(resolution(OTHER), aliases=(resolution(until=1_500.0),))
    found = judge_destination(Destination(Kind.TARGET, chain, target=TARGET))
    assert (found.verdict, found.message) == (Verdict.ALIAS, "The name is an alias of 10.5555/other.")
    assert found.fresh_until == 1_500.0


@pytest.mark.parametrize("kind", [Kind.VALUES, Kind.NO_VALUES])
def test_a_record_without_a_redirect_has_no_target(kind: Kind) -> None:
    found = judge_destination(Destination(kind, resolution()))
    assert (found.verdict, found.url) == (Verdict.NO_TARGET, None)
    assert found.message == "The record of the name has no URL to redirect to."


def test_not_found_needs_no_words() -> None:
    chain = resolution(code=ResponseCode.HANDLE_NOT_FOUND)
    found = judge_destination(Destination(Kind.NOT_FOUND, chain))
    assert (found.verdict, found.message) == (Verdict.NOT_FOUND, None)


def test_an_alias_of_a_name_that_does_not_exist_is_not_found() -> None:
    chain = structs.replace(resolution(OTHER, code=ResponseCode.HANDLE_NOT_FOUND), aliases=(resolution(),))
    found = judge_destination(Destination(Kind.NOT_FOUND, chain))
    assert (found.verdict, found.message) == (Verdict.NOT_FOUND, "The name is an alias of 10.5555/other.")


def test_a_tombstone_is_not_found_with_its_reason_and_has_no_age() -> None:
    gone = resolution(
        code=ResponseCode.HANDLE_NOT_FOUND, origin=Origin.LOCAL, tombstone=Tombstone("Withdrawn.", "2025-01-31")
    )
    found = judge_destination(Destination(Kind.NOT_FOUND, gone))
    assert (found.verdict, found.message) == (Verdict.NOT_FOUND, "Gone since 2025-01-31: Withdrawn.")
    assert found.age(5_000.0) is None


def test_a_stale_record_says_why_it_is_not_renewed() -> None:
    stale = resolution(origin=Origin.STALE, failure=UpstreamTimeout())
    found = judge_destination(Destination(Kind.TARGET, stale, target=TARGET))
    assert (found.verdict, found.is_stale) == (Verdict.RESOLVED, True)
    assert found.message == "The record is past its TTL: The upstream did not answer in time."
    unasked = judge_destination(Destination(Kind.TARGET, resolution(origin=Origin.STALE), target=TARGET))
    assert unasked.message == "The record is past its TTL."


QUOTA: Final = Quota("share", 1, 1)


@table(
    ("error", "verdict", "worth_waiting"),
    [
        (BudgetSpent(), Verdict.RATE_LIMITED, True),
        (ShareSpent(quota=QUOTA, retry_after=1.0), Verdict.RATE_LIMITED, True),
        (UpstreamPaused(), Verdict.RATE_LIMITED, True),
        (UpstreamRefused(upstream_status=429), Verdict.RATE_LIMITED, True),
        (UpstreamRefused(upstream_status=503), Verdict.UNVERIFIED, False),
        (BreakerOpen(), Verdict.UNVERIFIED, True),
        (UpstreamTimeout(), Verdict.UNVERIFIED, False),
        (InvalidAnswer(), Verdict.UNVERIFIED, False),
        (NotCached(), Verdict.UNVERIFIED, False),
        (NotInBundle(), Verdict.UNVERIFIED, False),
        (PrefixDenied("For tests."), Verdict.UNVERIFIED, False),
    ],
)
def test_each_failure_has_its_verdict(error: CouldNotVerify, verdict: Verdict, worth_waiting: bool) -> None:
    assert judge_failure(error) == Judgement(
        verdict, message=error.message, retry_after=error.retry_after, failure=error.token
    )
    assert is_worth_waiting(error) is worth_waiting


@pytest.mark.parametrize(
    "error", [AliasChainTooLong(reached="10.5555/loop"), PrefixInactive(status_message=None, contact=None)]
)
def test_an_answer_that_leads_nowhere_has_no_target(error: DoiProxyError) -> None:
    assert judge_failure(error) == Judgement(Verdict.NO_TARGET, message=error.message)


def test_an_input_that_is_not_a_doi_has_no_doi_and_a_reason() -> None:
    row = not_a_doi("10.1000", explain_other_name(HandleName("10.1000")))
    assert (row.input, row.doi, row.verdict) == ("10.1000", None, Verdict.NOT_A_DOI)
    assert row.message is not None and "prefix" in row.message
    assert "begins with “10.”" in explain_other_name(HandleName("20.500/1"))


def test_the_vocabulary_is_closed() -> None:
    """It is part of the public interface."""
    assert [one.value for one in Verdict] == [
        "resolved", "alias", "no_target", "not_found", "not_a_doi", "unverified", "rate_limited",
    ]  # fmt: skip


def test_the_oldest_judgements_that_a_batch_remembers_give_way() -> None:
    memory = JudgementMemory(3 * (400 + 9))
    for letter in "ABCD":
        memory.remember(f"10.5555/{letter}", Judgement(Verdict.UNVERIFIED), 0.0)
    assert [letter for letter in "ABCD" if memory.find(f"10.5555/{letter}") is not None] == ["B", "C", "D"]
