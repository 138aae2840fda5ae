"""Resolves the names of a list, and the other records that their redirects need."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TextIO

from doi_names.errors import InvalidName, NotUTF8
from doi_names.name import DOIName, HandleName
from doi_names.presentation import read_typed
from doi_proxy import errors
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.feature import CommandContext
from doi_proxy.list_formats.body import ListSource, read_items, require_files
from doi_proxy.list_formats.entries import NO_DOI, ListItem
from doi_proxy.resolver.destination import DestinationQuery, Destinations
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import UNCONFIRMED, Conditions, Negotiation, Origin, Resolution
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.system.files import STANDARD_INPUT
from doi_proxy.system.progress import INTERRUPTED, SIGNALS, Bar, progress, shows_progress, stop_on_signals
from doi_proxy.upstream.source import Priority
from handle_protocol.referral import ResponseCode

#: Limit of a line, in bytes. A longer line is refused.
MAX_LINE_BYTES: Final = 1024 * 1024
#: Limit of the names that are remembered to find repeated ones: about 120 MB. Then the memory starts empty again.
MAX_REMEMBERED: Final = 1_000_000
#: Characters of an unreadable item that a message shows.
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item of a list that is not a name: its place, its text, cut short, and the reason."""

    place: str
    text: str
    reason: str


NameItem = HandleName | RefusedItem


class UniqueNames:
    """The items of a list, with each name once: in its first spelling, compared by its canonical key."""

    def __init__(self, items: Iterable[NameItem], most: int = MAX_REMEMBERED) -> None:
        self._items = items
        self._most = most
        #: Names left out so far because they are repeated.
        self.repeated = 0

    def __iter__(self) -> Iterator[NameItem]:
        seen: set[str] = set()
        for item in self._items:
            if isinstance(item, HandleName):
                if item.key in seen:
                    self.repeated += 1
                    continue
                if len(seen) >= self._most:
                    seen.clear()
                seen.add(item.key)
            yield item


def read_lists(paths: Sequence[str], *, column: str | None = None, any_handle: bool = False) -> Iterator[NameItem]:
    """Read the names of lists, one list after the other. `-` is standard input.

    The name of a file decides its format (list_formats/formats.py). Handles that are not DOI names or shortDOIs
    need `any_handle`. Raises ConfigurationError now if a file does not exist, and during the iteration if it cannot be
    read to its end.
    """
    require_files(paths)
    return (
        item
        for path in paths
        for item in _read_list(ListSource(path, column=column, max_line_bytes=MAX_LINE_BYTES), any_handle)
    )


def count_names(lists: Sequence[str], column: str | None, any_handle: bool) -> int | None:
    """Count the names of lists. None if no bar is shown, or if a list cannot be read twice."""
    if STANDARD_INPUT in lists or not shows_progress():
        return None
    return sum(1 for _ in UniqueNames(read_lists(lists, column=column, any_handle=any_handle)))


def _read_list(source: ListSource, any_handle: bool) -> Iterator[NameItem]:
    for item in read_items(source):
        place = f"{source.path}, line {item.line}"
        if not isinstance(item, ListItem):
            if item.reason != NO_DOI:
                yield RefusedItem(place, item.text.strip()[:_SHOWN], item.message)
        elif item.text.strip():
            yield _read_item(place, item, any_handle)


def _read_item(place: str, item: ListItem, any_handle: bool) -> NameItem:
    text = item.text
    if item.found is not None:
        return item.found.name
    try:
        if item.note is not None:
            raise NotUTF8
        return read_name(text, any_handle=any_handle)
    except InvalidName as error:
        return RefusedItem(place, text.strip()[:_SHOWN], error.message)


def read_name(text: str, *, any_handle: bool = False) -> HandleName:
    """Read a name in any presentation form. Raises InvalidName; without `any_handle`, NotADOI for other handles."""
    name = read_typed(text)
    if any_handle or name.is_doi or name.is_short_doi:
        return name
    return DOIName.parse(name.text)


#: Consecutive names that could not be verified, after which the visit stops.
MAX_FAILURES: Final = 20
#: Limit of the messages for one outcome. Further names are only counted.
MAX_NAMED: Final = 20

_BULK: Final = Conditions(priority=Priority.BULK)
#: A request for metadata. It makes the locations of the prefix count too.
_METADATA: Final = Negotiation(conneg=True)

#: Failures without a query to the upstream. The name is tried again.
_NOT_SENT: Final = (errors.NotAdmitted, errors.BreakerOpen, errors.UpstreamPaused)


class VisitOutcome(Enum):
    """The result for a name of a list."""

    RESOLVED = "resolved"
    NOT_FOUND = "not_found"
    VALUES_NOT_FOUND = "values_not_found"
    INVALID = "invalid"
    COULD_NOT_VERIFY = "could_not_verify"
    STALE = "stale"
    SKIPPED = "skipped"  # fresh in the store, without a query to the upstream


_ANSWERS: Final = {
    ResponseCode.SUCCESS: VisitOutcome.RESOLVED,
    ResponseCode.HANDLE_NOT_FOUND: VisitOutcome.NOT_FOUND,
    ResponseCode.VALUES_NOT_FOUND: VisitOutcome.VALUES_NOT_FOUND,
}
_FAILED: Final = (VisitOutcome.COULD_NOT_VERIFY, VisitOutcome.STALE)


@dataclass(slots=True)
class Tally:
    """The number of names by outcome, and messages about those that need attention."""

    counts: Counter[VisitOutcome] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    _reported: Counter[VisitOutcome] = field(default_factory=Counter)

    def add(self, outcome: VisitOutcome, about: str = "") -> None:
        """Count a name, and add the message `about`, up to MAX_NAMED messages for each outcome."""
        self.counts[outcome] += 1
        if about and self._reported[outcome] < MAX_NAMED:
            self._reported[outcome] += 1
            self.messages.append(f"{outcome.value}: {about}")

    def has_failures(self) -> bool:
        """Whether any name could not be verified."""
        return any(self.counts[outcome] for outcome in _FAILED)


@dataclass(frozen=True, slots=True)
class VisitBounds:
    """The names that are visited at a time, and the highest number that is queried upstream.

    Without `queries_upstream`, the resolver is sealed: a name in the store is skipped, and any other could not be
    verified.
    """

    concurrency: int
    limit: int | None = None
    queries_upstream: bool = True


class Visit:
    """Resolves the names of a list: the record of each name, then its aliases and the records of its prefix."""

    def __init__(
        self,
        cache: TieredStore,
        resolver: Resolver,
        *,
        clock: Callable[[], float],
        bounds: VisitBounds,
        after_each: Callable[[], None] = lambda: None,
    ) -> None:
        """MAX_FAILURES in a row stop the visit.

        `after_each` is called after each name. An exception that it raises ends the visit.
        """
        self._cache = cache
        self._resolver = resolver
        self._destinations = Destinations(resolver, PrefixChain(resolver), resolves="any")
        self._clock = clock
        self._concurrency = bounds.concurrency
        self._left = bounds.limit
        self._queries_upstream = bounds.queries_upstream
        self._after_each = after_each
        self._failures_in_a_row = 0
        self._stop = asyncio.Event()
        self.tally = Tally()
        #: Why the visit stopped before the end of the list, else "".
        self.stop_reason = ""
        #: The error in reading the list. The caller raises it after its report.
        self.list_failure: errors.DoiProxyError | None = None

    def stop(self, why: str) -> None:
        """Start no more names. The names under way are finished."""
        self.stop_reason = self.stop_reason or why
        self._stop.set()

    async def run(self, items: Iterator[NameItem], bar: Bar) -> None:
        """Visit the names until the end of the list, or until the visit is stopped."""
        workers = [asyncio.create_task(self._work(items, bar)) for _ in range(self._concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, items: Iterator[NameItem], bar: Bar) -> None:
        while not self._stop.is_set() and (item := self._next(items)) is not None:
            if isinstance(item, RefusedItem):
                self.tally.add(VisitOutcome.INVALID, f"{item.place}: {item.text!r}: {item.reason}")
            else:
                await self._visit(item)
            self._after_each()
            bar.advance(1)
            # Let the event loop handle signals, even if no name has to wait.
            await asyncio.sleep(0)

    def _next(self, items: Iterator[NameItem]) -> NameItem | None:
        try:
            return next(items, None)
        except errors.FAILURES as error:
            self.list_failure = errors.as_failure(error)
            self.stop(error.message)
            return None

    async def _visit(self, name: HandleName) -> None:
        known = await self._cache.get(name.key)
        if self._resolver.resolve_now(name) is None and (known is None or not known.is_fresh(self._clock())):
            if self._left == 0:
                self.stop("the limit is reached")
                return
            self._left = None if self._left is None else self._left - 1
        resolution, failure = await self._resolve(name)
        if isinstance(failure, _NOT_SENT) and self._stop.is_set():
            return  # not sent, and not tried to the end: the next run takes this name
        missing = None
        if resolution is not None and resolution.is_registered:
            missing = await resolve_dependencies(self._destinations, resolution)
        if self._queries_upstream:
            self._judge(name, resolution, missing or failure)
        elif resolution is None:
            self.tally.add(VisitOutcome.COULD_NOT_VERIFY, f"{name.text}: not in the store")
        else:
            self.tally.add(VisitOutcome.SKIPPED)

    def _judge(self, name: HandleName, resolution: Resolution | None, failure: errors.CouldNotVerify | None) -> None:
        outcome = _outcome(resolution)
        if failure is not None and outcome is not VisitOutcome.STALE:
            outcome = VisitOutcome.COULD_NOT_VERIFY
        self.tally.add(outcome, f"{name.text}: {failure.message}" if failure else "")
        # Without a query, it says nothing about the upstream.
        if outcome is not VisitOutcome.SKIPPED and not isinstance(failure, errors.PrefixDenied):
            self._failures_in_a_row = self._failures_in_a_row + 1 if outcome in _FAILED else 0
        if self._failures_in_a_row >= MAX_FAILURES:
            self.stop(f"{self._failures_in_a_row} names in a row could not be verified")

    async def _resolve(self, name: HandleName) -> tuple[Resolution | None, errors.CouldNotVerify | None]:
        """Resolve a name. A query that was not sent is tried again. Returns the answer and the failure."""
        resolution: Resolution | None = None
        failure: errors.CouldNotVerify | None = None
        # Limit of the tries of a query that was not sent because of the budget or the circuit breaker.
        for tries_left in reversed(range(3)):
            try:
                resolution = await self._resolver.resolve(name, _BULK)
                failure = resolution.failure
            except errors.CouldNotVerify as error:
                resolution, failure = None, error
            if not isinstance(failure, _NOT_SENT) or not tries_left or self._stop.is_set():
                break
            await self._pause(failure.retry_after or 1.0)
        return resolution, failure

    async def _pause(self, seconds: float) -> None:
        try:
            # Limit of the pause before another try, in seconds.
            async with asyncio.timeout(min(seconds, 60.0)):
                await self._stop.wait()
        except TimeoutError:
            pass


async def resolve_dependencies(destinations: Destinations, resolution: Resolution) -> errors.CouldNotVerify | None:
    """Resolve what the redirect of a name needs: aliases, included locations, its prefix. Returns the failure."""
    try:
        await destinations.complete(resolution, DestinationQuery(resolution.name, negotiation=_METADATA), _BULK)
    except errors.CouldNotVerify as error:
        return error
    except errors.FAILURES:
        # A loop of aliases, or an inactive prefix, is an answer too.
        return None
    return None


def _outcome(resolution: Resolution | None) -> VisitOutcome:
    if resolution is None:
        return VisitOutcome.COULD_NOT_VERIFY
    if resolution.origin in UNCONFIRMED:
        return VisitOutcome.STALE
    answered = _ANSWERS[resolution.entry.answer.code]
    at_hand = resolution.origin in (Origin.HIT, Origin.LOCAL)
    return VisitOutcome.SKIPPED if at_hand and answered is VisitOutcome.RESOLVED else answered


@contextmanager
def stop_visit_on_signals(visit: Visit) -> Iterator[None]:
    """Stop a visit as `stop_on_signals` does. The caller reports what was visited."""
    with stop_on_signals(lambda number: visit.stop(_reason(number))):
        try:
            yield
        except asyncio.CancelledError:
            if not was_interrupted(visit):
                raise


def was_interrupted(visit: Visit) -> bool:
    """Whether a signal stopped the visit."""
    return visit.stop_reason in map(_reason, SIGNALS)


def _reason(number: signal.Signals) -> str:
    return f"by {number.name}"


def print_tally(tally: Tally, file: TextIO) -> None:
    """Print the counts to `file`, and the messages to standard error."""
    for line in tally.messages:
        print(line, file=sys.stderr)
    print(", ".join(f"{outcome.value} {tally.counts[outcome]}" for outcome in VisitOutcome), file=file)


async def warm(context: CommandContext, lists: Sequence[str], *, column: str | None, limit: int | None) -> int:
    """Fetch the names of lists that are not fresh in the store. Exit status 1 if one could not be verified."""
    settings = context.settings
    any_handle = settings.resolve == "any"
    names = UniqueNames(read_lists(lists, column=column, any_handle=any_handle))
    total = count_names(lists, column, any_handle)
    async with context.stores.open_online() as parts:
        bounds = VisitBounds(settings.upstream_max_concurrency, limit)
        visit = Visit(parts.cache, parts.resolver, clock=time.time, bounds=bounds)
        with progress("warming", total) as bar, stop_visit_on_signals(visit):
            await visit.run(iter(names), bar)
    print_tally(visit.tally, sys.stdout)
    if names.repeated:
        print(f"{names.repeated} names were repeated, and counted once", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stop_reason:
        print(
            f"stopped: {visit.stop_reason}; run the same command again to continue; it skips fresh names",
            file=sys.stderr,
        )
    if was_interrupted(visit):
        return INTERRUPTED
    if not visit.tally.counts.total():
        print("the lists have no names", file=sys.stderr)
        return 1
    return 1 if visit.tally.has_failures() else 0
