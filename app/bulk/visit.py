"""Names of a list through the resolver, with all that their redirects need, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from app.bulk.lists import Item, NotRead
from app.bulk.progress import Bar
from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.errors import BreakerOpen, BudgetSpent, CouldNotVerify, DoiProxyError, UpstreamPaused
from app.handle.answer import ResponseCode
from app.resolver.destination import Destinations, Query
from app.resolver.options import Negotiation
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolution import Origin, Resolution
from app.resolver.resolver import Demand, Resolver
from app.upstream.source import Priority

#: Tries of one question that this side did not let through, because of the budget or the breaker.
TRIES: Final = 3
#: The longest wait before such a try, in seconds.
LONGEST_PAUSE: Final = 60.0
#: Names in a row that could not be verified after which the rest is left for another time.
MAX_FAILURES: Final = 20
#: Names told of each verdict; the others are counted.
MAX_NAMED: Final = 20

_BULK: Final = Demand(priority=Priority.BULK)
#: As a program asks that wants metadata: then the locations of the prefix count too.
_METADATA: Final = Negotiation(conneg=True)


#: Failures after which a name is tried again: no question left.
_HELD_BACK: Final = (BudgetSpent, BreakerOpen, UpstreamPaused)


class Verdict(Enum):
    """What became of a name of a list."""

    RESOLVED = "resolved"
    NOT_FOUND = "not_found"
    VALUES_NOT_FOUND = "values_not_found"
    INVALID = "invalid"
    COULD_NOT_VERIFY = "could_not_verify"
    STALE = "stale"
    SKIPPED = "skipped"  # fresh in the store, so that nobody was asked


_ANSWERS: Final = {
    ResponseCode.SUCCESS: Verdict.RESOLVED,
    ResponseCode.HANDLE_NOT_FOUND: Verdict.NOT_FOUND,
    ResponseCode.VALUES_NOT_FOUND: Verdict.VALUES_NOT_FOUND,
}
_FAILED: Final = (Verdict.COULD_NOT_VERIFY, Verdict.STALE)


@dataclass(slots=True)
class Tally:
    """How many names got which verdict, and the first of those that somebody should look at."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    _of: Counter[Verdict] = field(default_factory=Counter)

    def add(self, verdict: Verdict, about: str = "") -> None:
        """Count a name; with `about`, tell of it if not too many were told of."""
        self.counts[verdict] += 1
        if about and self._of[verdict] < MAX_NAMED:
            self._of[verdict] += 1
            self.named.append(f"{verdict.value}: {about}")

    def failed(self) -> bool:
        """Whether any name could not be verified."""
        return any(self.counts[verdict] for verdict in _FAILED)


class Visit:
    """Goes through a list. Every name's own record is asked for, then its aliases and the records of its prefix."""

    def __init__(
        self,
        cache: TieredStore,
        resolver: Resolver,
        *,
        clock: Callable[[], float],
        at_once: int,
        limit: int | None = None,
        asks: bool = True,
        visited: Callable[[], None] = lambda: None,
    ) -> None:
        """`limit` bounds the names that are asked upstream; MAX_FAILURES in a row end the visit.

        Without `asks`, the resolver is a sealed one: a name is skipped where the store has it, and else counts as not
        verified. `visited` is called behind each name and may raise, which ends the visit.
        """
        self._cache = cache
        self._resolver = resolver
        self._destinations = Destinations(resolver, PrefixChain(), resolves="any")
        self._clock = clock
        self._at_once = at_once
        self._left = limit
        self._asks = asks
        self._visited = visited
        self._in_a_row = 0
        self._stop = asyncio.Event()
        self.tally = Tally()
        #: Why the visit ended before the list did, "" if it did not.
        self.stopped = ""
        #: What reading the list raised, for whoever has told what became of the names before.
        self.list_failure: DoiProxyError | None = None

    def stop(self, why: str) -> None:
        """Begin no other name; those under way are finished."""
        self.stopped = self.stopped or why
        self._stop.set()

    async def run(self, items: Iterator[Item], bar: Bar) -> None:
        """Visit the names until the list ends, or the visit is stopped."""
        workers = [asyncio.create_task(self._work(items, bar)) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, items: Iterator[Item], bar: Bar) -> None:
        while not self._stop.is_set() and (item := self._next(items)) is not None:
            if isinstance(item, NotRead):
                self.tally.add(Verdict.INVALID, f"{item.place}: {item.text!r}: {item.reason}")
            else:
                await self._visit(item)
            self._visited()
            bar.advance(1)
            await asyncio.sleep(0)  # signals are handled between the names, also where nobody has to be waited for

    def _next(self, items: Iterator[Item]) -> Item | None:
        try:
            return next(items, None)
        except DoiProxyError as error:
            self.list_failure = error
            self.stop(error.message)
            return None

    async def _visit(self, name: HandleName) -> None:
        known = await self._cache.get(name.key)
        if known is None or not known.is_fresh(self._clock()):
            if self._left == 0:
                self.stop("the limit is reached")
                return
            self._left = None if self._left is None else self._left - 1
        resolution, failure = await self._asked(name)
        if isinstance(failure, _HELD_BACK) and self._stop.is_set():
            return  # neither asked nor given up: it is left for another time
        missing = None
        if resolution is not None and resolution.found:
            missing = await ask_what_it_needs(self._destinations, resolution)
        if self._asks:
            self._judge(name, resolution, missing or failure)
        elif resolution is None:
            self.tally.add(Verdict.COULD_NOT_VERIFY, f"{name.text}: not in the store")
        else:
            self.tally.add(Verdict.SKIPPED)

    def _judge(self, name: HandleName, resolution: Resolution | None, failure: CouldNotVerify | None) -> None:
        verdict = _verdict(resolution)
        if failure is not None and verdict is not Verdict.STALE:
            verdict = Verdict.COULD_NOT_VERIFY
        self.tally.add(verdict, f"{name.text}: {failure.message}" if failure else "")
        if verdict is not Verdict.SKIPPED:  # which says nothing about the upstream
            self._in_a_row = self._in_a_row + 1 if verdict in _FAILED else 0
        if self._in_a_row >= MAX_FAILURES:
            self.stop(f"{self._in_a_row} names in a row could not be verified")

    async def _asked(self, name: HandleName) -> tuple[Resolution | None, CouldNotVerify | None]:
        """The answer and what went wrong; what was not let through is tried again later."""
        resolution: Resolution | None = None
        failure: CouldNotVerify | None = None
        for tries_left in reversed(range(TRIES)):
            try:
                resolution = await self._resolver.resolve(name, _BULK)
                failure = resolution.failure
            except CouldNotVerify as error:
                resolution, failure = None, error
            if not isinstance(failure, _HELD_BACK) or not tries_left or self._stop.is_set():
                break
            await self._pause(failure.retry_after or 1.0)
        return resolution, failure

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, LONGEST_PAUSE)):
                await self._stop.wait()
        except TimeoutError:
            pass


async def ask_what_it_needs(destinations: Destinations, resolution: Resolution) -> CouldNotVerify | None:
    """Look up what a redirect of a name depends on: aliases, included locations, its prefix. Returns what failed."""
    try:
        await destinations.complete(resolution, Query(resolution.name, negotiation=_METADATA), _BULK)
    except CouldNotVerify as error:
        return error
    except DoiProxyError:
        # A loop of aliases, or a prefix that is out of use, is an answer as well.
        return None
    return None


def _verdict(resolution: Resolution | None) -> Verdict:
    if resolution is None:
        return Verdict.COULD_NOT_VERIFY
    if resolution.origin is Origin.STALE:
        return Verdict.STALE
    answered = _ANSWERS[resolution.entry.answer.code]
    return Verdict.SKIPPED if resolution.origin is Origin.HIT and answered is Verdict.RESOLVED else answered
