"""What a batch remembers: failures and answers that the cache soon forgets, within its bytes."""

from __future__ import annotations

import pytest

from doi_proxy.features.lists.verdict import ENTRY_BYTES, Judgement, JudgementMemory, Verdict

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    "judgement",
    [
        Judgement(Verdict.UNVERIFIED),
        Judgement(Verdict.RATE_LIMITED),
        Judgement(Verdict.NOT_FOUND, fresh_until=NOW + 60),
        Judgement(Verdict.RESOLVED, "http://example.org/", fresh_until=NOW + 60),
        Judgement(Verdict.RESOLVED, "http://example.org/", fresh_until=0.0),
    ],
)
def test_what_the_cache_soon_forgets_is_remembered(judgement: Judgement) -> None:
    memory = JudgementMemory(10_000)
    memory.remember("10.5555/A", judgement, NOW)
    assert memory.find("10.5555/A") is judgement


def test_a_record_that_stays_fresh_is_left_to_the_cache() -> None:
    memory = JudgementMemory(10_000)
    memory.remember("10.5555/A", Judgement(Verdict.RESOLVED, fresh_until=NOW + 86_400), NOW)
    assert memory.find("10.5555/A") is None
    assert memory.bytes == 0


def test_the_oldest_findings_give_way() -> None:
    memory = JudgementMemory(3 * (ENTRY_BYTES + 9))
    for letter in "ABCD":
        memory.remember(f"10.5555/{letter}", Judgement(Verdict.UNVERIFIED), NOW)
    assert [letter for letter in "ABCD" if memory.find(f"10.5555/{letter}") is not None] == ["B", "C", "D"]
    assert (len(memory), memory.bytes) == (3, 3 * (ENTRY_BYTES + 9))


def test_a_finding_is_counted_once() -> None:
    memory = JudgementMemory(10_000)
    for _ in range(3):
        memory.remember("10.5555/A", Judgement(Verdict.UNVERIFIED), NOW)
    assert memory.bytes == ENTRY_BYTES + 9
