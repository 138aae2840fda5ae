"""What a batch remembers: failures and answers that the cache soon forgets, within its bytes."""

from __future__ import annotations

import pytest

from app.features.lists.findings import ENTRY_BYTES, Findings
from app.features.lists.verdict import Finding, Verdict

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    "finding",
    [
        Finding(Verdict.UNVERIFIED),
        Finding(Verdict.RATE_LIMITED),
        Finding(Verdict.NOT_FOUND, fresh_until=NOW + 60),
        Finding(Verdict.RESOLVED, "http://example.org/", fresh_until=NOW + 60),
        Finding(Verdict.RESOLVED, "http://example.org/", fresh_until=0.0),
    ],
)
def test_what_the_cache_soon_forgets_is_remembered(finding: Finding) -> None:
    findings = Findings(10_000)
    findings.remember("10.5555/A", finding, NOW)
    assert findings.find("10.5555/A") is finding


def test_a_record_that_stays_fresh_is_left_to_the_cache() -> None:
    findings = Findings(10_000)
    findings.remember("10.5555/A", Finding(Verdict.RESOLVED, fresh_until=NOW + 86_400), NOW)
    assert findings.find("10.5555/A") is None
    assert findings.bytes == 0


def test_the_oldest_findings_give_way() -> None:
    findings = Findings(3 * (ENTRY_BYTES + 9))
    for letter in "ABCD":
        findings.remember(f"10.5555/{letter}", Finding(Verdict.UNVERIFIED), NOW)
    assert [letter for letter in "ABCD" if findings.find(f"10.5555/{letter}") is not None] == ["B", "C", "D"]
    assert (len(findings), findings.bytes) == (3, 3 * (ENTRY_BYTES + 9))


def test_a_finding_is_counted_once() -> None:
    findings = Findings(10_000)
    for _ in range(3):
        findings.remember("10.5555/A", Finding(Verdict.UNVERIFIED), NOW)
    assert findings.bytes == ENTRY_BYTES + 9
