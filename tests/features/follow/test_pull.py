"""What a pull does about pages that fail, a primary that is busy, and cursors that lead back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from app.cache.memory import MemoryStore
from app.cache.tiered import TieredStore
from app.features.bundles.delta import DeltaEnd
from app.features.bundles.import_bundle import BundleImport, ImportBounds
from app.features.bundles.lines import to_line
from app.features.follow.errors import ChangesGone
from app.features.follow.pull import WAITS, Body, BrokenPage, PrimaryBusy, Pull, PullError, PullLimits, PullReport
from tests.cache.entries import NOW, entry
from tests.clock import Clock
from tests.features.follow.command.primaries import page

pytestmark = pytest.mark.anyio

RECORD = to_line(entry())
BUSY = PrimaryBusy("busy", 10.0)
CHANCE = 0.5


class Attempt:
    """A pull whose primary gives these answers in turn."""

    def __init__(self, *answers: bytes | Exception, busy: float = 100.0, max_bytes: int = 10**6) -> None:
        clock = Clock(NOW)
        cache = TieredStore(MemoryStore(1_000_000, clock=clock), None, clock=clock, ceiling=86_400.0)
        work = BundleImport(cache, ImportBounds(60.0, 86_400.0, 86_400.0, sealed=True), clock)
        self._answers = list(answers)
        self._job = Pull(
            self._fetch,
            work,
            self._save,
            sleep=self._sleep,
            chance=lambda: CHANCE,
            limits=PullLimits(max_bytes, busy=busy),
        )
        self.cursors: list[str] = []
        self.waits: list[float] = []
        self.saved: list[str] = []

    async def run(self, cursor: str = "") -> PullReport:
        return await self._job.run(cursor)

    async def _fetch(self, cursor: str) -> Body:
        self.cursors.append(cursor)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Body(answer, len(answer))

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def _save(self, end: DeltaEnd) -> None:
        self.saved.append(end.next)


async def test_a_busy_primary_is_waited_for_with_chance() -> None:
    attempt = Attempt(BUSY, PrimaryBusy("busy", 4.0), page(RECORD))
    report = await attempt.run()
    assert (report.is_complete, report.pages, report.repeats) == (True, 1, 2)
    assert attempt.waits == [15.0, 6.0]


async def test_the_wait_for_one_page_is_limited() -> None:
    attempt = Attempt(*[BUSY] * 3, page(RECORD, more=True), *[BUSY] * 4, busy=45.0)
    report = await attempt.run()
    assert (report.is_complete, report.failure, report.pages) == (False, "busy", 1)
    assert attempt.waits == [15.0] * 6
    assert attempt.saved == ["c1.next"]


@pytest.mark.parametrize("failure", [BrokenPage("broken"), page(RECORD)[:-40]])
async def test_a_page_that_fails_is_fetched_again_a_few_times(failure: bytes | Exception) -> None:
    attempt = Attempt(*[failure] * (len(WAITS) + 1))
    report = await attempt.run()
    assert not report.is_complete
    assert tuple(attempt.waits) == WAITS
    assert attempt.saved == []


@pytest.mark.parametrize("failure", [PullError("no"), b"\n" * 20_000])
async def test_what_a_repetition_does_not_mend_ends_the_pull(failure: bytes | Exception) -> None:
    attempt = Attempt(failure)
    assert not (await attempt.run()).is_complete
    assert attempt.waits == []


async def test_a_cursor_that_is_gone_begins_again_once() -> None:
    attempt = Attempt(ChangesGone("gone"), page(RECORD, more=True), ChangesGone("gone again"))
    report = await attempt.run("c1.old")
    assert (report.began_again, report.failure) == (True, "gone again")
    assert attempt.cursors == ["c1.old", "", "c1.next"]


def circle(lead: Iterable[str], around: Iterable[str]) -> list[bytes]:
    cursors = ["", *lead, *list(around) * 20]
    return [page(since=one, following=two, more=True) for one, two in pairwise(cursors)]


@pytest.mark.parametrize(("lead", "around"), [("", "ab"), ("abc", "de"), ("", "abcdefg"), ("abcdefghij", "klmno")])
async def test_cursors_in_a_circle_end_the_pull(lead: str, around: str) -> None:
    pages = circle(lead, around)
    attempt = Attempt(*pages)
    report = await attempt.run()
    assert report.failure is not None and "circle" in report.failure
    assert report.pages < 4 * (len(lead) + len(around))


async def test_the_limit_of_bytes_holds_for_pages_that_are_not_right_too() -> None:
    attempt = Attempt(*[page(RECORD)[:-40]] * 9, max_bytes=2 * len(page(RECORD)) - 80)
    report = await attempt.run()
    assert report.failure is not None and "the limit of" in report.failure
    assert len(attempt.cursors) == 2
