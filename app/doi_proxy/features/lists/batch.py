"""Resolves the names of a list: rows in the order of the inputs, a bounded number of lookups, one lookup per name.

Inputs are read while rows are written. The reader stops when `window` inputs wait for their rows, or when `concurrency`
lookups are under way. One slow name delays the rows after it, and memory does not grow. The registry records of the
names that have arrived are read together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal, TypeGuard

from doi_names.errors import InvalidName
from doi_names.name import HandleName, fold
from doi_names.presentation import read, read_typed_name
from doi_names.suggestion import Reading, Suggestion
from doi_proxy import errors
from doi_proxy.errors import FAILURES, CouldNotVerify, as_failure
from doi_proxy.features.feature import Core
from doi_proxy.features.lists.verdict import (
    GOOD,
    Judgement,
    JudgementMemory,
    ListRow,
    Verdict,
    explain_other_name,
    is_worth_waiting,
    join_notes,
    judge_destination,
    judge_failure,
    judge_target,
    not_a_doi,
)
from doi_proxy.features.metadata.match import Compared
from doi_proxy.features.suggestions.feature import build_suggested_names
from doi_proxy.features.suggestions.suggested_names import SuggestedNames
from doi_proxy.list_formats.entries import NO_DOI, ListItem
from doi_proxy.resolver.destination import DestinationQuery, Destinations
from doi_proxy.resolver.resolution import UNCONFIRMED, Conditions, Negotiation, Origin
from doi_proxy.system.options import Settings
from doi_proxy.upstream.source import ClientNetwork, Priority

#: The registration agency: not looked up, from the cache alone, or with queries about prefixes.
AgencySource = Literal["none", "cached", "any"]
#: Answers that do not show that the upstream works.
_WITHOUT_QUERY = frozenset({Origin.HIT, Origin.LOCAL}) | UNCONFIRMED


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The limits of one batch."""

    #: Lookups that are under way.
    concurrency: int
    #: Seconds that names wait while the upstream accepts no queries, from its first failure since an answer.
    timeout: float
    #: Inputs that wait for their rows.
    window: int = 256
    #: Memory for judgements that the cache does not keep, in bytes: a repeated name is not looked up again.
    memory_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What a caller requests about each name."""

    #: The client that upstream queries are charged to.
    client: ClientNetwork = None
    #: Whether the cache alone answers. A name outside the cache is unverified.
    only_cached: bool = False
    #: Whether the inputs are names as they are. Otherwise "%" begins an escape.
    literal: bool = False
    #: Whether rows have suggestions.
    suggests: bool = False
    #: Whether suggested names are looked up.
    checks: bool = False
    #: Whether rows say if their reference is about the work.
    matches: bool = False
    #: Whether no more names are looked up, and the rows end before the next that takes further queries.
    is_stopped: Callable[[], bool] = lambda: False
    agency: AgencySource = "cached"
    #: The priority of queries about names, and that of fetches of works.
    priority: Priority = Priority.BULK
    #: Whether a row depends on the records of the prefix too, as the answer to a request for metadata does.
    for_metadata: bool = False
    #: Names that are fetched from the upstream. The rows end before the next name.
    max_fetched: float = inf
    fetches: Priority = Priority.BULK
    #: When rows are due, in seconds of the event loop's clock. A name without an answer is unverified then. Works have
    #: until a moment before: a row keeps its verdict.
    due: float | None = None


def agency_source(fields: Sequence[str], *, is_named: bool, only_cached: bool) -> AgencySource:
    """Where agencies come from. Prefixes are queried only for a caller that names the member of a row."""
    if "ra" not in fields:
        return "none"
    return "any" if is_named and not only_cached else "cached"


class UpstreamWait:
    """The time since which the upstream has accepted no query of a batch. All names of the batch share the timeout.

    With a timeout for each name, a list of 100,000 names would take days while the upstream is down.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._since: float | None = None
        self._is_broken = False

    def record_answer(self, origin: Origin) -> None:
        """A name has been answered."""
        if origin not in _WITHOUT_QUERY:
            self._since = None
            self._is_broken = False

    def record_failure(self, error: errors.CouldNotVerify, began: float, now: float) -> float:
        """A lookup that began at `began` has failed. Returns the seconds that its name may still wait, at least 0."""
        # Failures without an attempt to query the upstream.
        if isinstance(error, (errors.NotCached, errors.NotInBundle, errors.PrefixDenied)):
            return 0.0
        if error.concerns_name:
            # The upstream has answered, so it works for other names; not if this was the probe of an open breaker:
            # an upstream that fails for every name would hold a list for 15 s a name.
            self._since = self._since if self._is_broken else None
            return 0.0
        self._is_broken = self._is_broken or isinstance(error, errors.BreakerOpen)
        if self._since is None:
            self._since = began
        return max(0.0, self._timeout - (now - self._since))


class AgencyLookup:
    """Finds agencies in the records of prefixes and service handles."""

    def __init__(self, destinations: Destinations, options: BatchOptions) -> None:
        self._prefixes = destinations.prefixes
        self._is_off = options.agency == "none"
        only_cached = options.agency == "cached"
        self._conditions = Conditions(priority=Priority.BULK, client=options.client, only_cached=only_cached)
        self._agencies: dict[str, str | None] = {}

    def is_known(self, name: HandleName) -> bool:
        """Whether `find_now` has the answer, so `find` is not needed."""
        return self._is_off or fold(name.prefix) in self._agencies

    def find_now(self, name: HandleName) -> str | None:
        """The agency of a name whose prefix was looked up. None if it is not known."""
        return self._agencies.get(fold(name.prefix))

    async def find(self, name: HandleName) -> str | None:
        """The agency of a name. None if it is not known. A prefix without an answer is not looked up again."""
        if self.is_known(name):
            return self.find_now(name)
        try:
            agency = await self._prefixes.find_agency(name.prefix, self._conditions)
        except (errors.CouldNotVerify, InvalidName):
            agency = None
        # Prefixes that are remembered. A list of 100,000 names has about 3,000.
        if len(self._agencies) >= 10_000:
            self._agencies.clear()
        self._agencies[fold(name.prefix)] = agency
        return agency


#: Lookups of one list that are under way: half of the places at an upstream, which is the share of lists.
CONCURRENCY: Final = 8
#: Seconds that the names of a list wait while the upstream accepts no queries: as long as its longest first pause.
#: After a longer outage, the caller sends the rest of the list again.
WAIT_TIMEOUT: Final = 60.0

#: Compares a reference with the work of a name, for a client, at a priority.
Compare = Callable[[HandleName, str, ClientNetwork, Priority], Awaitable[Compared]]
#: An input as it was sent, also with its place in a list; or its row, if it is known already.
BatchInput = str | ListItem | ListRow


@dataclass(frozen=True, slots=True)
class Batches:
    """Starts batches. `clock` is in seconds since the epoch, `timer` monotonic."""

    destinations: Destinations
    bounds: BatchBounds
    clock: Callable[[], float]
    timer: Callable[[], float]
    suggested_names: SuggestedNames
    #: Called with the verdict of each row.
    count: Callable[[str], None] = lambda verdict: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: None if no metadata are fetched.
    compare: Compare | None = None

    async def rows(self, inputs: AsyncIterator[BatchInput], options: BatchOptions) -> AsyncGenerator[ListRow]:
        """The row of each input, in their order. See `groups`."""
        async for group in self.groups(inputs, options):
            for row in group:
                yield row

    async def groups(self, inputs: AsyncIterator[BatchInput], options: BatchOptions) -> AsyncGenerator[list[ListRow]]:
        """The same rows, in groups of those that are ready at the same time.

        An error of `inputs` is raised after the rows of the inputs before it. Close the generator to stop the work:
        queries that wait for the upstream are abandoned, those under way end by themselves.
        """
        batch = _Batch(self, options)
        readers = asyncio.create_task(batch.take(inputs)), asyncio.create_task(batch.read())
        try:
            async for group in batch.collect():
                yield group
        finally:
            await batch.stop(*readers)


def build_batches(
    settings: Settings,
    core: Core,
    names: SuggestedNames | None = None,
    clock: Callable[[], float] = time.time,
    count: Callable[[str], None] = lambda verdict: None,
    compare: Compare | None = None,
    concurrency: int = CONCURRENCY,
) -> Batches:
    """The engine. `count` is called with the verdict of each row."""
    bounds = BatchBounds(concurrency, WAIT_TIMEOUT)
    names = names or build_suggested_names(settings, core, settings.public_url)
    return Batches(core.destinations, bounds, clock, time.monotonic, names, count, compare=compare)


@dataclass(frozen=True, slots=True)
class _Pending:
    """An input whose name is being looked up."""

    item: ListItem
    name: HandleName
    lookup: asyncio.Task[_Answer]
    #: The comparison of its reference, which begins when the name is known to lead somewhere.
    comparison: asyncio.Task[Compared] | None


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the inputs, and the error that ended them early."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    judgement: Judgement
    agency: str | None


class Turn:
    """The time that one batch has held the event loop. `timer` is monotonic, in seconds."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._began = timer()

    def is_over(self) -> bool:
        """Whether other requests come first now."""
        # Seconds after which the event loop serves other requests. A row takes 20 to 200 microseconds, with suggestions
        # up to a millisecond. Turns of 16 rows held the event loop for up to 27 ms of processor time, these for up to 3
        # ms.
        return self._timer() - self._began >= 0.000_5

    async def yield_if_over(self) -> None:
        """Let the event loop serve other requests, and begin the next turn."""
        if self.is_over():
            await asyncio.sleep(0)
            self._began = self._timer()


class _Batch:
    """One batch: a reader that starts lookups, and a queue of rows and lookups in the order of the inputs."""

    def __init__(self, parts: Batches, options: BatchOptions) -> None:
        self._parts = parts
        self._options = options
        self._conditions = Conditions(priority=options.priority, client=options.client, only_cached=options.only_cached)
        #: Inputs that have arrived. Read 64 at a time, a registry record takes half as long as one by one, 2 ms in all.
        #: 256 at a time, it would take a fifth less.
        self._inputs: asyncio.Queue[ListItem | ListRow | _End] = asyncio.Queue(min(64, parts.bounds.window))
        self._queue: asyncio.Queue[ListRow | _Pending | _End] = asyncio.Queue(parts.bounds.window)
        self._slots = asyncio.Semaphore(parts.bounds.concurrency)
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        #: Their works come in the order of the list, and lists wait for an agency in turn.
        self._comparisons, self._fetches = set[asyncio.Task[Compared]](), asyncio.Semaphore(parts.bounds.concurrency)
        self._judgements = JudgementMemory(parts.bounds.memory_bytes)
        self._agencies = AgencyLookup(parts.destinations, options)
        self._wait = UpstreamWait(parts.bounds.timeout)
        self._turn = Turn(parts.timer)
        #: Names that may still be fetched.
        self._left = options.max_fetched
        self._began = asyncio.get_running_loop().time()
        self._checks_seconds = 0.0

    # --- The inputs -----------------------------------------------------------------------------------------------

    async def take(self, inputs: AsyncIterator[BatchInput]) -> None:
        """Take the inputs as they arrive."""
        end = _End()
        try:
            async for batch_input in inputs:
                await self._inputs.put(ListItem(batch_input) if isinstance(batch_input, str) else batch_input)
        except Exception as error:  # raised to the caller after the rows before it
            end = _End(error)
        await self._inputs.put(end)

    async def read(self) -> None:
        """Start the lookup of each input as soon as there is room."""
        end: _End | None = None
        try:
            while end is None:
                # Those that are there: a client can wait for a row before it sends the next name.
                inputs = [await self._inputs.get()]
                while not self._inputs.empty():
                    inputs.append(self._inputs.get_nowait())
                items = [self._read(item) if isinstance(item, ListItem) else item for item in inputs]
                keys = [item[1].key for item in items if isinstance(item, tuple)]
                self._parts.destinations.resolver.cache.read_ahead(keys)
                for item in items:
                    # A name that the cache answers counts until then.
                    while not self._left and self._lookups:
                        await asyncio.wait(self._lookups.values(), return_when=asyncio.FIRST_COMPLETED)
                    if isinstance(item, _End) or self._options.is_stopped() or not self._left:
                        end = item if isinstance(item, _End) else _End()
                        break
                    await self._queue.put(await self._start(*item) if isinstance(item, tuple) else item)
                    await self._turn.yield_if_over()
        except Exception as error:  # raised to the caller after the rows before it
            end = _End(error)
        await self._queue.put(end)

    async def _start(self, item: ListItem, name: HandleName) -> ListRow | _Pending:
        """The row of an input if it is known now. Otherwise its lookup, which this starts if there is none."""
        lookup = self._lookups.get(name.key)
        if lookup is None:
            judgement = self._find_now(name)
            if judgement is not None and self._agencies.is_known(name) and not self._options.matches:
                return self._row(item, name, _Answer(judgement, self._agencies.find_now(name)))
            lookup = await self._launch(name, judgement)
        comparison = None
        if self._options.matches:
            comparison = asyncio.create_task(self._compare(item.cited, name, lookup))
            self._comparisons.add(comparison)
            comparison.add_done_callback(self._comparisons.discard)
        return _Pending(item, name, lookup, comparison)

    def _read(self, item: ListItem) -> tuple[ListItem, HandleName] | ListRow:
        """An item with its name, or the row of one that is not looked up."""
        try:
            read_name = read if self._options.literal else read_typed_name
            name = read_name(item.text) if item.found is None else item.found.name
        except InvalidName as error:
            return self._reject(item, error.message)
        return (item, name) if self._parts.destinations.looks_up(name) else self._reject(item, explain_other_name(name))

    def _find_now(self, name: HandleName) -> Judgement | None:
        judgement = self._judgements.find(name.key)
        if judgement is not None or self._options.for_metadata:
            return judgement
        destinations = self._parts.destinations
        found = destinations.resolver.resolve_now(name, only_cached=self._options.only_cached)
        target = None if found is None else destinations.read_target(found)
        if found is None or target is None:
            return None
        return judge_target(destinations.resolver.count_answer(found), target)

    async def _launch(self, name: HandleName, judgement: Judgement | None) -> asyncio.Task[_Answer]:
        await self._slots.acquire()
        self._left -= judgement is None
        lookup = asyncio.create_task(self._look_up(name, judgement))
        self._lookups[name.key] = lookup
        lookup.add_done_callback(lambda done: self._land(name.key))
        return lookup

    def _land(self, key: str) -> None:
        del self._lookups[key]
        self._slots.release()

    async def stop(self, *readers: asyncio.Task[None]) -> None:
        """Cancel the readers and the lookups, and return when they have ended."""
        # Before the first wait: a client that leaves while its list ends cancels that wait.
        tasks = [*readers, *self._comparisons, *self._lookups.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- The lookup of one name -------------------------------------------------------------------------------------

    async def _look_up(self, name: HandleName, judgement: Judgement | None) -> _Answer:
        try:
            async with asyncio.timeout_at(self._options.due):
                if judgement is None:
                    judgement = await self._find(name)
                    self._judgements.remember(name.key, judgement, self._parts.clock())
                return _Answer(judgement, await self._agencies.find(name))
        except TimeoutError:
            return _Answer(judgement or Judgement(Verdict.UNVERIFIED, message=errors.UpstreamTimeout().message), None)

    async def _compare(self, entry: str, name: HandleName, lookup: asyncio.Task[_Answer]) -> Compared:
        """Compare a reference with the work of a name that leads somewhere."""
        await asyncio.wait((lookup,))
        if lookup.cancelled() or lookup.result().judgement.verdict is Verdict.UNVERIFIED:
            return Compared(reason="unverified")
        if lookup.result().judgement.verdict not in GOOD or not entry.strip():
            return Compared(reason="nothing")
        compare, options = self._parts.compare, self._options
        if compare is None or options.only_cached:
            return Compared(reason="off")
        try:
            # Seconds in which the rows of a page are read from the batch.
            async with asyncio.timeout_at(None if options.due is None else options.due - 2.0), self._fetches:
                return await compare(name, entry, options.client, options.fetches)
        except TimeoutError:
            return Compared(reason="late")

    async def _find(self, name: HandleName) -> Judgement:
        """Look up a name. While the upstream accepts no queries, wait and try again, within the timeout."""
        query = DestinationQuery(name, negotiation=Negotiation(conneg=self._options.for_metadata))
        while True:
            began = self._parts.timer()
            try:
                destination = await self._parts.destinations.find(query, self._conditions)
            except CouldNotVerify as error:
                left = self._wait.record_failure(error, began, self._parts.timer())
                if not left or not is_worth_waiting(error) or self._options.only_cached:
                    return judge_failure(error)
                # The pause that the failure names, else 1 s, at most the rest of the timeout. At least 10 ms: the rest
                # can be less than a clock shows, and the loop would never end.
                await self._parts.sleep(max(0.01, min(left, error.retry_after or 1.0)))
            except FAILURES as error:
                return judge_failure(as_failure(error))
            else:
                self._wait.record_answer(destination.resolution.origin)
                self._left += destination.resolution.origin in (Origin.HIT, Origin.LOCAL)
                return judge_destination(destination)

    # --- The rows ---------------------------------------------------------------------------------------------------

    async def collect(self) -> AsyncGenerator[list[ListRow]]:
        """The rows in the order of the inputs, or those before a stop. Raises the error that ended the inputs."""
        item = await self._queue.get()
        while not isinstance(item, _End):
            if self._waits(item) and self._options.is_stopped():
                return
            group = [await self._complete(item)]
            following = self._take_next()
            # A row that waits begins a group: the rows before it are written first, also if a signal ends the wait.
            # The largest group of rows is 64.
            while _is_known(following) and not self._waits(following) and len(group) < 64 and not self._turn.is_over():
                group.append(await self._complete(following))
                following = self._take_next()
            yield group
            await self._turn.yield_if_over()
            item = following or await self._queue.get()
        if item.error is not None:
            raise item.error

    def _waits(self, item: ListRow | _Pending) -> bool:
        """Whether the row of an item needs queries after its look-up: of a full queue, they would take minutes."""
        if isinstance(item, _Pending) and item.comparison is not None and not item.comparison.done():
            return True
        if not self._options.suggests or not (self._options.checks or self._parts.suggested_names.can_search):
            return False
        if isinstance(item, ListRow):
            return item.suggestions is None
        return not item.lookup.done() or item.lookup.result().judgement.verdict is Verdict.NOT_FOUND

    def _take_next(self) -> ListRow | _Pending | _End | None:
        """The next item of the queue, None if it is empty."""
        return None if self._queue.empty() else self._queue.get_nowait()

    async def _complete(self, item: ListRow | _Pending) -> ListRow:
        row = item if isinstance(item, ListRow) else self._row(item.item, item.name, await item.lookup)
        if self._options.suggests and row.suggestions is None:
            row = await self._suggest(row)
        if self._options.matches:
            comparison = item.comparison if isinstance(item, _Pending) else None
            row = row.with_comparison(Compared(reason="nothing") if comparison is None else await comparison)
        self._parts.count(row.verdict.value)
        return row

    def _row(self, item: ListItem, name: HandleName, answer: _Answer) -> ListRow:
        judgement = answer.judgement
        row = ListRow(
            item.text, name.text, judgement.verdict, judgement.url, answer.agency,
            judgement.age(self._parts.clock()), judgement.is_stale, join_notes(judgement.message, item.note),
            line=item.line or None, key=item.key, echo=item.echo, found=item.found, judgement=judgement,
        )  # fmt: skip
        return row

    def _reject(self, item: ListItem, message: str) -> ListRow:
        """The row of an input that is not looked up."""
        return not_a_doi(item.text, message).place(item)

    async def _suggest(self, row: ListRow) -> ListRow:
        """The row with suggestions: either all rows of a batch have the member, or none has."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        # Seconds that the rows of a list wait for the checks of suggestions, and the share of the list's time that is
        # added. The rows wait one after the other: at an upstream that takes 1 s, of 2,000 names 281 were answered in
        # 300 s.
        allowed = 20.0 + 0.1 * (began - self._began)
        row = await self._find_suggestions(row, checks=self._options.checks and self._checks_seconds < allowed)
        self._checks_seconds += loop.time() - began
        return row

    async def _find_suggestions(self, row: ListRow, *, checks: bool) -> ListRow:
        """The row with suggestions, which are looked up with `checks`."""
        names, options = self._parts.suggested_names, self._options
        if row.doi is not None and row.verdict is not Verdict.NOT_FOUND:
            # The name may go on where its text ends: the book of a chapter.
            others = row.found.suggestions if row.found is not None and row.found.confidence == "likely" else ()
            known = [other for other in await names.check(others, options.client) if other.exists] if checks else ()
            return _suggest(row, row.reading, known)
        name = None if row.doi is None else HandleName(row.doi)
        best, suggestions = await names.suggest(
            row.input if row.found is None else row.found.text,
            name,
            options.client,
            checks=checks,
            longer=() if row.found is None else row.found.suggestions,
            derived=row.derived,
        )
        best = best if row.found is None else row.reading
        has_doubt = row.found is not None and row.found.confidence in ("likely", "doubtful")
        is_open = checks and has_doubt and not any(suggestion.exists for suggestion in suggestions)
        if is_open and name is not None and await names.lacks_prefix(name, options.client):
            message = f"Nobody has the prefix {name.prefix}, so this is not a DOI."
            row = replace(row, doi=None, verdict=Verdict.NOT_A_DOI, reason=NO_DOI, message=message)
            return _suggest(row, None, ())
        if best is not None or suggestions:
            row = replace(row, reason=None) if row.verdict is Verdict.NOT_A_DOI and not row.derived else row
        return _suggest(row, best, suggestions)


def _suggest(row: ListRow, best: Reading | None, suggestions: Sequence[Suggestion]) -> ListRow:
    """The row with suggestions. A name that is known to exist is the best, one that does not exist never."""
    is_missing = row.doi is None or row.verdict is Verdict.NOT_FOUND
    first = [suggestion.reading for suggestion in suggestions[:1] if suggestion.exists and is_missing]
    missing = {suggestion.doi.key for suggestion in suggestions if suggestion.exists is False}
    if row.verdict is Verdict.NOT_FOUND and row.doi is not None:
        missing.add(HandleName(row.doi).key)
    readings = (*first, best, *(suggestion.reading for suggestion in suggestions))
    likeliest = next((reading for reading in readings if reading is not None and reading.name.key not in missing), None)
    return replace(row, best=likeliest, suggestions=tuple(suggestions))


def _is_known(item: ListRow | _Pending | _End | None) -> TypeGuard[ListRow | _Pending]:
    """Whether an item is a row, or will be one without waiting."""
    return isinstance(item, ListRow) or (isinstance(item, _Pending) and item.lookup.done())
