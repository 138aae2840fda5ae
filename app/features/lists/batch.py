"""Resolves the names of a list: rows in the order of the inputs, a bounded number of lookups, one lookup per name.

Inputs are read while rows are written. The reader stops when `window` inputs wait for their rows, or when `concurrency`
lookups are under way. One slow name delays the rows after it, and memory does not grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeGuard

from app.doi.name import HandleName
from app.doi.presentation import read
from app.errors import CouldNotVerify, DoiProxyError, InvalidName
from app.features.lists.agency_lookup import AgencyLookup
from app.features.lists.findings import Findings
from app.features.lists.item import Item, ListItem
from app.features.lists.outage import Outage
from app.features.lists.time_slice import Turn
from app.features.lists.typed_name import read_typed_name
from app.features.lists.verdict import (
    Finding,
    Row,
    Verdict,
    explain_other_name,
    is_worth_waiting,
    judge,
    judge_failure,
    judge_target,
    not_a_doi,
)
from app.features.suggestions.suggested_names import SuggestedNames
from app.features.suggestions.suggestion import Suggestion
from app.resolver.demand import Demand
from app.resolver.destination import DestinationQuery, Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolver import Resolver
from app.upstream.source import ClientNetwork, Priority

#: The largest group of rows.
MAX_GROUP: Final = 64
#: The pause before another try if the failure names none, in seconds.
_USUAL_PAUSE: Final = 1.0

#: An input as it was sent; or its row, if it is known already.
BatchInput = str | Row


def read_input(item: Item) -> BatchInput:
    """The input of an item of a list. One that cannot be read has its row."""
    return item.text if isinstance(item, ListItem) else not_a_doi(item.text, item.message)


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The limits of one batch."""

    #: Lookups that are under way.
    concurrency: int
    #: Seconds that names wait while the upstream accepts no queries, from its first failure since an answer.
    patience: float
    #: Inputs that wait for their rows.
    window: int = 256
    #: Memory for findings that the cache does not keep, in bytes: a repeated name is not looked up again.
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
    #: The registration agency: not looked up, from the cache alone, or with queries about prefixes.
    agency: Literal["none", "cached", "any"] = "cached"
    #: The priority of queries about names.
    priority: Priority = Priority.BULK


@dataclass(frozen=True, slots=True)
class Batches:
    """Starts batches. `clock` is in seconds since the epoch, `timer` monotonic."""

    resolver: Resolver
    destinations: Destinations
    prefixes: PrefixChain
    bounds: BatchBounds
    clock: Callable[[], float]
    timer: Callable[[], float]
    suggested_names: SuggestedNames
    #: Called with the verdict of each row.
    count: Callable[[Verdict], None] = lambda verdict: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def rows(self, inputs: AsyncIterator[BatchInput], options: BatchOptions) -> AsyncGenerator[Row, None]:
        """The row of each input, in their order. See `groups`."""
        async for group in self.groups(inputs, options):
            for row in group:
                yield row

    async def groups(self, inputs: AsyncIterator[BatchInput], options: BatchOptions) -> AsyncGenerator[list[Row], None]:
        """The same rows, in groups of those that are ready at the same time.

        An error of `inputs` is raised after the rows of the inputs before it. Close the generator to stop the work:
        queries that wait for the upstream are abandoned, those under way end by themselves.
        """
        batch = _Batch(self, options)
        reader = asyncio.create_task(batch.read(inputs))
        try:
            async for group in batch.collect():
                yield group
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await batch.stop()


@dataclass(frozen=True, slots=True)
class _Pending:
    """An input whose name is being looked up."""

    text: str
    name: HandleName
    lookup: asyncio.Task[_Answer]


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the inputs, and the error that ended them early."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    finding: Finding
    agency: str | None


class _Batch:
    """One batch: a reader that starts lookups, and a queue of rows and lookups in the order of the inputs."""

    def __init__(self, parts: Batches, options: BatchOptions) -> None:
        self._parts = parts
        self._options = options
        self._demand = Demand(priority=options.priority, client=options.client, only_cached=options.only_cached)
        self._queue: asyncio.Queue[Row | _Pending | _End] = asyncio.Queue(parts.bounds.window)
        self._slots = asyncio.Semaphore(parts.bounds.concurrency)
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        self._findings = Findings(parts.bounds.memory_bytes)
        self._agencies = AgencyLookup(parts.resolver, parts.prefixes, options.client, options.agency)
        self._outage = Outage(parts.bounds.patience)
        self._turn = Turn(parts.timer)

    # --- The inputs -----------------------------------------------------------------------------------------------

    async def read(self, inputs: AsyncIterator[BatchInput]) -> None:
        """Start the lookup of each input as soon as there is room."""
        end = _End()
        try:
            async for text in inputs:
                await self._queue.put(self._admit(text) if isinstance(text, Row) else await self._start(text))
                await self._turn.yield_if_over()
        except Exception as error:  # raised to the caller after the rows before it
            end = _End(error)
        await self._queue.put(end)

    async def _start(self, text: str) -> Row | _Pending:
        """The row of an input if it is known now. Otherwise its lookup, which this starts if there is none."""
        try:
            name = read(text) if self._options.literal else read_typed_name(text)
        except InvalidName as error:
            return self._reject(text, error.message)
        if not self._parts.destinations.looks_up(name):
            return self._reject(text, explain_other_name(name))
        lookup = self._lookups.get(name.key)
        if lookup is None:
            finding = self._find_now(name)
            if finding is not None and self._agencies.is_known(name):
                return self._row(text, name, _Answer(finding, self._agencies.find_now(name)))
            lookup = await self._launch(name, finding)
        return _Pending(text, name, lookup)

    def _find_now(self, name: HandleName) -> Finding | None:
        finding = self._findings.find(name.key)
        if finding is not None:
            return finding
        found = self._parts.destinations.find_target_now(name)
        return None if found is None else judge_target(*found)

    async def _launch(self, name: HandleName, finding: Finding | None) -> asyncio.Task[_Answer]:
        await self._slots.acquire()
        lookup = asyncio.create_task(self._look_up(name, finding))
        self._lookups[name.key] = lookup
        lookup.add_done_callback(lambda done: self._land(name.key))
        return lookup

    def _land(self, key: str) -> None:
        del self._lookups[key]
        self._slots.release()

    async def stop(self) -> None:
        """Cancel the lookups, and return when they have ended."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    # --- The lookup of one name -------------------------------------------------------------------------------------

    async def _look_up(self, name: HandleName, finding: Finding | None) -> _Answer:
        if finding is None:
            finding = await self._find(name)
            self._findings.remember(name.key, finding, self._parts.clock())
        return _Answer(finding, await self._agencies.find(name))

    async def _find(self, name: HandleName) -> Finding:
        """Look up a name. While the upstream accepts no queries, wait and try again, within the patience."""
        query = DestinationQuery(name)
        while True:
            began = self._parts.timer()
            try:
                destination = await self._parts.destinations.find(query, self._demand)
            except CouldNotVerify as error:
                left = self._outage.record_failure(error, began, self._parts.timer())
                if not left or not is_worth_waiting(error) or self._options.only_cached:
                    return judge_failure(error)
                await self._parts.sleep(min(left, error.retry_after or _USUAL_PAUSE))
            except DoiProxyError as error:
                return judge_failure(error)
            else:
                self._outage.record_answer(destination.chain.last.origin)
                return judge(destination)

    # --- The rows ---------------------------------------------------------------------------------------------------

    async def collect(self) -> AsyncGenerator[list[Row], None]:
        """The rows in the order of the inputs. Raises the error that ended the inputs."""
        item = await self._queue.get()
        while not isinstance(item, _End):
            group = [await self._complete(item)]
            following = self._take_next()
            while following is not None and _is_known(following) and self._has_room(group):
                group.append(await self._complete(following))
                following = self._take_next()
            yield group
            await self._turn.yield_if_over()
            item = following or await self._queue.get()
        if item.error is not None:
            raise item.error

    def _has_room(self, group: list[Row]) -> bool:
        return len(group) < MAX_GROUP and not self._turn.is_over()

    def _take_next(self) -> Row | _Pending | _End | None:
        """The next item of the queue, None if it is empty."""
        return None if self._queue.empty() else self._queue.get_nowait()

    async def _complete(self, item: Row | _Pending) -> Row:
        row = item if isinstance(item, Row) else self._row(item.text, item.name, await item.lookup)
        self._parts.count(row.verdict)
        return row

    def _row(self, text: str, name: HandleName, answer: _Answer) -> Row:
        finding = answer.finding
        age = finding.age(self._parts.clock())
        row = Row(text, name.text, finding.verdict, finding.url, answer.agency, age, finding.is_stale, finding.message)
        is_missing = self._options.suggests and finding.verdict is Verdict.NOT_FOUND
        return self._add_suggestions(row, self._parts.suggested_names.for_name(name) if is_missing else ())

    def _reject(self, text: str, message: str) -> Row:
        """The row of an input that is not looked up."""
        found = self._parts.suggested_names.for_text(text) if self._options.suggests else ()
        return self._add_suggestions(not_a_doi(text, message), found)

    def _admit(self, row: Row) -> Row:
        """A row that the caller knows, which may have suggestions already."""
        return row if row.suggestions is not None else self._add_suggestions(row, ())

    def _add_suggestions(self, row: Row, suggestions: Iterable[Suggestion]) -> Row:
        """Every row of a batch passes here or has suggestions: either all rows have them, or none has."""
        return replace(row, suggestions=tuple(suggestions)) if self._options.suggests else row


def _is_known(item: Row | _Pending | _End) -> TypeGuard[Row | _Pending]:
    """Whether an item is a row, or will be one without waiting."""
    return isinstance(item, Row) or (isinstance(item, _Pending) and item.lookup.done())
