"""What the log says about an upstream: one line when something begins, one when it ends."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import pytest

from doi_proxy.errors import (
    BudgetSpent,
    InvalidAnswer,
    PageAnswer,
    PlacesFull,
    ResourcesShort,
    UpstreamPaused,
    UpstreamRefused,
    UpstreamSlow,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from doi_proxy.upstream.upstream_log import BudgetLog, UpstreamLog
from tests.certificates import END, LOOPBACK, PAST, Authority
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.table import table
from tests.web.proxy import Proxy

LATE = UpstreamTimeout()
DOWN = UpstreamUnreachable(detail="ConnectError: All connection attempts failed")
UNREADABLE = InvalidAnswer("It is HTML.", detail="a\nforged line")


class Written:
    """A log of one upstream, and its lines at a level or above."""

    def __init__(self, lines: pytest.LogCaptureFixture, *, level: int = logging.INFO, shows_names: bool = True) -> None:
        lines.set_level(level, "doi_proxy.upstream.upstream_log")
        self._lines = lines
        self.clock = Clock(0)
        self.log = UpstreamLog("upstream 1 (up.example)", self.clock, shows_names=shows_names)

    @property
    def lines(self) -> list[str]:
        return self._lines.messages


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Written:
    return Written(caplog)


def test_an_outage_is_two_lines_whatever_is_asked_meanwhile(written: Written) -> None:
    for _ in range(100):
        written.log.failure(DOWN, is_open=True)
        written.clock.advance(7.8)
    assert written.log.down_seconds == pytest.approx(780)
    written.log.answer()
    written.log.answer()
    assert written.lines == [
        "upstream 1 (up.example) is down: upstream-unreachable: The upstream could not be "
        "reached. 'ConnectError: All connection attempts failed'; wait, or look at the network and the firewall; "
        "HTTPS_PROXY names an egress proxy",
        "upstream 1 (up.example) is up again after 780 s",
    ]
    assert written.log.down_seconds == 0


def test_a_single_failure_writes_nothing(written: Written) -> None:
    written.log.answer()
    written.log.failure(DOWN, is_open=False)
    written.clock.advance(1)
    written.log.answer()
    assert written.lines == []


@table(
    ("detail", "remedy", "sign"),
    [
        ("certificate verify failed: certificate has expired (_ssl.c:1006)", "check the clock", "certificate-expired"),
        ("certificate verify failed: unable to get local issuer certificate", "set upstream_ca_bundle", "certificate"),
        ("ConnectError: self-signed certificate", "set upstream_ca_bundle", "certificate"),
        ("ConnectError: certificate is not yet valid", "check the clock", "certificate-early"),
        ("Hostname mismatch, certificate is not valid for 'x'", "correct the address", "certificate-host"),
        ("IP address mismatch, certificate is not valid for '127.0.0.1'", "correct the address", "certificate-host"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "correct the address", ""),
        (
            "ProxyError: the egress proxy out.example:80 cannot be reached: [SSL: WRONG_VERSION_NUMBER] wrong",
            "correct HTTPS_PROXY",
            "egress",
        ),
        ("Connect call failed ('127.0.0.1', 9)", "correct the address", ""),
        ("[Errno -3] Temporary failure in name resolution", "check the DNS of this machine", "dns"),
        ("[Errno -2] Name or service not known", "correct the address", "dns"),
    ],
)
def test_the_first_failure_of_an_upstream_that_never_answered_is_a_line_with_a_remedy(
    caplog: pytest.LogCaptureFixture, detail: str, remedy: str, sign: str
) -> None:
    caplog.clear()
    written = Written(caplog)
    for _ in range(3):
        written.log.failure(UpstreamUnreachable(detail=detail), is_open=False)
    (line,) = written.lines
    assert line.startswith("upstream 1 (up.example) is down: upstream-unreachable: ")
    assert f"; {remedy}" in line
    (outage,) = written.log.outages.read()
    assert (outage.cause.token, outage.cause.sign) == ("upstream-unreachable", sign)


def test_a_first_answer_that_is_late_is_not_an_outage(written: Written) -> None:
    for _ in range(3):
        written.log.failure(LATE, is_open=False)
    (line,) = written.lines
    assert line.startswith("upstream 1 (up.example) has not answered yet: upstream-timeout: ")
    assert not written.log.is_down


def test_two_connections_that_fail_in_a_row_are_an_outage(written: Written) -> None:
    written.log.answer()
    for error in (DOWN, LATE, DOWN):
        written.log.failure(error, is_open=False)
    assert (written.lines, written.log.is_down) == ([], False)
    written.log.failure(DOWN, is_open=False)
    assert (len(written.lines), written.log.is_down) == (1, True)


def test_few_failures_over_a_minute_are_an_outage_too(written: Written) -> None:
    written.log.answer()
    written.log.failure(LATE, is_open=False)
    written.clock.advance(59)
    written.log.failure(LATE, is_open=False)
    assert (written.lines, written.log.is_down, written.log.down_seconds) == ([], False, 0)
    written.clock.advance(1)
    written.log.failure(LATE, is_open=False)
    assert (len(written.lines), written.log.is_down) == (1, True)
    assert written.log.down_seconds == 60


def test_a_pause_is_two_lines(written: Written) -> None:
    written.log.pause_end()
    for _ in range(3):
        written.log.pause(60, UpstreamPaused())
    written.clock.advance(61)
    written.log.pause_end()
    written.log.pause_end()
    assert written.lines == [
        "upstream 1 (up.example) gets no queries for 60 s: upstream-paused: The upstream has requested a "
        "pause with Retry-After; try again later.",
        "upstream 1 (up.example) gets queries again after 61 s",
    ]


def test_unusable_answers_are_one_line_a_minute_with_their_number_and_without_names(written: Written) -> None:
    for _ in range(123):
        written.log.unreadable("10.5555/secret", UNREADABLE)
        written.clock.advance(1)
    assert [line.split(": ")[1].split(",")[0] for line in written.lines] == ["1", "2", "60", "60"]
    assert not any("secret" in line or "\n" in line for line in written.lines)


def test_the_third_unusable_answer_in_a_row_is_a_warning(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2):
        written.log.unreadable(f"10.5555/{number}", UNREADABLE)
    written.log.answer()
    for number in range(3):
        written.log.unreadable(f"10.5555/{number}", UNREADABLE)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_each_cause_of_an_outage_is_a_line_and_an_incident_with_its_remedy(written: Written) -> None:
    causes = [DOWN, PageAnswer(), UpstreamRefused(upstream_status=503), LATE]
    for error in causes:
        for _ in range(3):
            written.log.failure(error, is_open=True)
            written.clock.advance(3)
    written.log.answer()
    assert [line.partition(" is ")[2].partition(": The")[0] for line in written.lines] == [
        "down: upstream-unreachable",
        "still down, for another reason after 9 s: upstream-bad-answer",
        "still down, for another reason after 18 s: upstream-refused",
        "still down, for another reason after 27 s: upstream-timeout",
        "up again after 36 s",
    ]
    assert "; open the address of the upstream from this machine: a login portal" in written.lines[1]
    assert [(found.cause.token, found.cause.sign, found.ended) for found in written.log.outages.read()] == [
        ("upstream-unreachable", "", 9),
        ("upstream-bad-answer", "page", 18),
        ("upstream-refused", "503", 27),
        ("upstream-timeout", "", 36),
    ]


def test_an_upstream_that_fails_in_two_ways_in_turn_writes_a_line_for_each_and_one_in_five_minutes(
    written: Written,
) -> None:
    for _ in range(60):
        for error in (DOWN, LATE):
            written.log.failure(error, is_open=True)
            written.clock.advance(5)
    assert len(written.lines) == 3


@pytest.mark.parametrize("shows_names", [True, False])
def test_the_name_is_in_the_log_at_debug_alone_and_if_the_privacy_level_allows(
    caplog: pytest.LogCaptureFixture, shows_names: bool
) -> None:
    written = Written(caplog, level=logging.DEBUG, shows_names=shows_names)
    written.log.unreadable("10.5555/name\nforged", UNREADABLE)
    assert any("'10.5555/name\\nforged'" in line for line in written.lines) is shows_names


def test_refused_queries_are_two_lines_and_over_only_after_a_quiet_while(written: Written) -> None:
    budget = BudgetLog(written.clock)
    budget.notice_quiet()
    for _ in range(50):
        budget.refusal(BudgetSpent(), "2 of 16 queries are in flight")
        budget.notice_quiet()
        written.clock.advance(1)
    budget.notice_quiet()
    assert len(written.lines) == 1
    written.clock.advance(10)
    budget.notice_quiet()
    budget.notice_quiet()
    assert written.lines == [
        "queries about new names are refused: budget-spent: 2 of 16 queries are in flight; limit the clients that need "
        "most (client_rate), or agree with the upstream on a higher upstream_rate",
        "queries about new names are sent again after 60 s",
    ]


def test_another_cause_is_another_line_and_another_incident(written: Written) -> None:
    budget = BudgetLog(written.clock)
    for error in (PlacesFull(), UpstreamSlow(), UpstreamSlow(), ResourcesShort()):
        budget.refusal(error, "16 of 16 queries are in flight")
        written.clock.advance(5)
    written.clock.advance(5)
    budget.notice_quiet()
    assert [line.partition(": 16 of")[0] for line in written.lines] == [
        "queries about new names are refused: places-full",
        "queries about new names are refused for another reason: upstream-slow",
        "queries about new names are refused for another reason: resources-short",
        "queries about new names are sent again after 25 s",
    ]
    found = budget.refusals.read()
    assert [(incident.cause.token, incident.ended is not None) for incident in found] == [
        ("places-full", True),
        ("upstream-slow", True),
        ("resources-short", True),
    ]
    assert budget.refusals.read() == []


@pytest.mark.parametrize(("status", "remedy"), [(429, "; lower upstream_rate"), (403, "; the upstream may block")])
def test_an_upstream_that_refuses_us_is_a_line_with_what_to_write_to_whom(
    written: Written, status: int, remedy: str
) -> None:
    written.log.failure(UpstreamRefused(upstream_status=status), is_open=True)
    (line,) = written.lines
    assert remedy in line and "the DOI Foundation" in line


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "end", "is_trusted", "remedy", "reason"),
    [
        (LOOPBACK, PAST, True, "check the clock of this machine; otherwise", "has expired"),
        (LOOPBACK, END, False, "set upstream_ca_bundle to", "is not accepted"),
        ("other.example", END, True, "or check the DNS of this machine: its certificate", "is for another host"),
    ],
    ids=["expired", "unknown authority", "another host"],
)
async def test_a_certificate_that_cannot_be_used_is_a_line_with_its_remedy_and_a_reason_of_readyz(
    name: str,
    end: datetime,
    is_trusted: bool,
    remedy: str,
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    authority = Authority(tmp_path)
    async with FakeUpstream(tls=authority.issue(name, end=end).context) as upstream:
        trusted = {"upstream_ca_bundle": authority.file} if is_trusted else {}
        async with Proxy(upstream_url=upstream.url, **trusted) as proxy:
            assert (await proxy.get("/10.5555/a")).status == 502
            ready = (await proxy.get("/readyz")).json["sentence"]
    (line,) = [line for line in caplog.messages if "upstream 1" in line]
    assert remedy in line
    assert f"An upstream gives no usable answer: no connection (its certificate {reason}" in ready
