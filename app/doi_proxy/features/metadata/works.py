"""The works that names lead to: in memory and in the store, and fetched within a share of the upstream's budget."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from cachetools import LRUCache, TTLCache

from doi_names.name import HandleName
from doi_proxy.cache.missed import WORKS
from doi_proxy.cache.store import scopes_of
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import FAILURES
from doi_proxy.features.feature import Core
from doi_proxy.features.metadata.client import (
    CSL,
    FETCH_TIMEOUT,
    KeptWork,
    MetadataClient,
    ServerFailure,
    read_works,
    write_works,
)
from doi_proxy.features.metadata.match import Match, Work, match, read_work
from doi_proxy.networks import AllowedAddresses
from doi_proxy.resolver.destination import DestinationQuery, Destinations
from doi_proxy.resolver.resolution import Conditions, ResolveOptions, name_media_type
from doi_proxy.resolver.target import href, matches, web_target
from doi_proxy.system.check import Service
from doi_proxy.system.options import Settings
from doi_proxy.system.version import read_version
from doi_proxy.upstream.budget import Budget, TokenBucket
from doi_proxy.upstream.client import identify
from doi_proxy.upstream.source import ClientNetwork, Priority
from doi_proxy.web.negotiation import negotiate
from doi_proxy.web.stage import PageKind, Section

#: Works in memory: about 1 KB each with their names.
MAX_WORKS: Final = 10_000
#: Seconds for which a work is kept.
TTL: Final = 7 * 86_400.0
#: Fetches under way in one process.
CONCURRENCY: Final = 8
#: After so many failures of a host, it is left alone for half a minute.
HOST_FAILURES: Final = 3
_OPTIONS: Final = ResolveOptions(media_type=CSL)


@dataclass(frozen=True, slots=True)
class FetchBudget:
    """What fetches are paid from: a share of the budget, after everything that waits for the budget itself."""

    bucket: TokenBucket
    budget: Budget
    #: Whether a fetch waits for its token. Nothing else uses the share then.
    waits: bool = False

    async def take(self, leaving: float) -> bool:
        """Take a token, if so many are left then. Returns whether there was one."""
        if self.waits:
            while seconds := await self.bucket.take():  # noqa: ASYNC110 - a bucket has no event
                await asyncio.sleep(seconds)
            return True
        return not self.budget.waiting and not await self.bucket.take(leaving)


class Works:
    """Finds works. `fetch` returns the body at an address, None if it has none, or raises ServerFailure."""

    def __init__(
        self,
        destinations: Destinations,
        fetch: Callable[[str], Awaitable[bytes | None]],
        budget: FetchBudget,
        cache: TieredStore,
        count: Callable[[str], None] = lambda result: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`count` is called with the result of each fetch. `clock` is in seconds since the epoch."""
        self._destinations = destinations
        self._fetch = fetch
        self._budget = budget
        self._cache = cache
        self._count = count
        self._clock = clock
        self._works: LRUCache[str, KeptWork] = LRUCache(MAX_WORKS)
        #: Those that are not in the note of the store yet.
        self._new: LRUCache[str, KeptWork] = LRUCache(MAX_WORKS)
        #: Names without an answer, whose metadata are not fetched again for so many seconds.
        self._absent: TTLCache[str, bool] = TTLCache(MAX_WORKS, 300.0)
        self._failures: TTLCache[str, int] = TTLCache(256, 30.0)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()

    def recall(self, name: HandleName) -> Work | None:
        """The work in memory."""
        kept = self._works.get(name.key)
        return kept.work if kept is not None and self._is_usable(name.key, kept.fetched_at) else None

    def may_find(self, name: HandleName) -> bool:
        """Whether a fetch may bring the work: within minutes, none has failed or ended without it."""
        return name.is_doi and name.key not in self._absent

    def _is_usable(self, key: str, fetched_at: float) -> bool:
        """Whether a work is within its TTL, and its name was not purged since."""
        now = self._clock()
        return now - TTL < fetched_at <= now and self._cache.last_purge(*scopes_of(key)) < fetched_at

    async def load(self) -> None:
        """Take the works of the store into memory."""
        for number, (key, kept) in enumerate(read_works(await self._cache.read_note(WORKS))):
            if self._is_usable(key, kept.fetched_at):
                self._works.setdefault(key, kept)
            # Works that one turn of the event loop takes into memory. All of them took up to 20 ms.
            if number % 256 == 0:
                await asyncio.sleep(0)

    async def save(self) -> None:
        """Add the new works to those of the store. If it fails, they stay new."""
        new = dict(self._new)
        if new and await self._cache.change_note(WORKS, lambda before: write_works(new, before, self._is_usable)):
            for key, kept in new.items():
                if self._new.get(key) is kept:
                    del self._new[key]

    async def find(
        self, name: HandleName, client: ClientNetwork, timeout: float, *, leaving: float = 0.0
    ) -> Work | None:
        """The work of a name, None if it is not known within `timeout` seconds. Raises nothing.

        A fetch that takes longer continues. `leaving` are the tokens of the share that are left to others.
        """
        if name.key not in self._tasks:
            if (known := self.recall(name)) is not None or name.key in self._absent:
                return known
            if self._is_full() or not await self._budget.take(leaving) or self._is_full():
                self._count("refused")
                return None
        # Another caller may have begun the fetch while the budget was asked.
        task = self._tasks.get(name.key) or self._begin(name, client)
        await asyncio.wait((task,), timeout=timeout)
        return self.recall(name)

    def _is_full(self) -> bool:
        return len(self._tasks) >= CONCURRENCY

    def _begin(self, name: HandleName, client: ClientNetwork) -> asyncio.Task[None]:
        task = self._tasks[name.key] = asyncio.create_task(self._bring(name, client))
        task.add_done_callback(lambda _: self._tasks.pop(name.key))
        return task

    async def compare(self, name: HandleName, reference: str, client: ClientNetwork) -> tuple[Match, str | None]:
        """Compare the reference of a list with the work of a name. Returns the title too, if it is known."""
        # Tokens that lists leave to the pages of records.
        work = await self.find(name, client, FETCH_TIMEOUT, leaving=1.0)
        return ("unknown", None) if work is None else (match(reference, work), work.title)

    async def stop(self) -> None:
        """Cancel the fetches, and return when they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bring(self, name: HandleName, client: ClientNetwork) -> None:
        """Fetch a work into memory."""
        began_at = self._clock()
        try:
            url = await self._find_address(name, client)
            body = None if url is None else await self._fetch_from(url)
        except (*FAILURES, ServerFailure):
            self._absent[name.key] = True
            self._count("failed")
            return
        work = None if body is None else read_work(body)
        if work is None:
            self._absent[name.key] = True
        else:
            self._works[name.key] = self._new[name.key] = KeptWork(began_at, work)
        self._count("none" if work is None else "work")

    async def _fetch_from(self, url: str) -> bytes | None:
        host = urlsplit(url).hostname or ""
        if self._hosts[host] >= 4 or self._failures.get(host, 0) >= HOST_FAILURES:
            raise ServerFailure("the host is left alone")
        self._hosts[host] += 1
        try:
            body = await self._fetch(url)
        except ServerFailure:
            self._failures[host] = self._failures.get(host, 0) + 1
            raise
        finally:
            self._hosts[host] -= 1
            self._hosts += Counter()  # drops the hosts without a fetch
        self._failures.pop(host, None)
        return body

    async def _find_address(self, name: HandleName, client: ClientNetwork) -> str | None:
        """The address of the metadata that the agency names for the prefix. A record's own locations do not count.

        Raises DoiProxyError.
        """
        negotiation = negotiate(CSL, None, False)
        conditions = Conditions(priority=Priority.BULK, client=client)
        found = await self._destinations.find(DestinationQuery(name, _OPTIONS, negotiation), conditions)
        locations = found.locations.of_prefix.items
        for locatt in negotiation.locatts:
            for location in locations:
                url = href(location, found.resolution.name) if matches(location, *locatt) else None
                if url is not None:
                    return web_target(name_media_type(url.strip(), CSL))
        return None


class OpenWorks(Service):
    """The works of one process, and the client that fetches them."""

    def __init__(self, works: Works, client: MetadataClient, cache: TieredStore) -> None:
        self.works = works
        self._cache = cache
        self._client = client

    async def run(self) -> None:
        """Take the works of the store into memory, and add new ones to them. At the end, the cache is still open."""
        await self._cache.wait_for_store()
        await self.works.load()
        try:
            while True:
                # Seconds between two writes of the note.
                await asyncio.sleep(60.0)
                await self.works.save()
        finally:
            await self.works.save()

    async def stop(self) -> None:
        """End the fetches, and close the connections."""
        await self.works.stop()
        await self._client.aclose()


def open_works(
    settings: Settings,
    core: Core,
    count: Callable[[str], None] = lambda result: None,
    clock: Callable[[], float] = time.time,
    *,
    waits: bool = False,
) -> OpenWorks:
    """The works, which are paid from the share of the budget for what no client requested. Raises ConfigurationError.

    `count` is called with the result of each fetch. `clock` is in seconds since the epoch. With `waits`, a fetch
    waits until there is room in that share.
    """
    allowed = AllowedAddresses(settings.upstream_private_servers)
    authorities = None if settings.upstream_ca_bundle is None else str(settings.upstream_ca_bundle)
    identity = identify(f"doi-proxy/{read_version()}", settings.upstream_contact)
    client = MetadataClient(allowed, identity, authorities)
    budget = FetchBudget(core.background, core.upstream.budget, waits=waits)
    return OpenWorks(Works(core.destinations, client.fetch, budget, core.cache, count, clock), client, core.cache)


#: Seconds that the page of a record waits for its metadata. The records of a new prefix and the answer of an agency
#: take one to two. A person would rather wait for them than open the page twice.
PAGE_TIMEOUT: Final = 2.0


class WorkSection(Section):
    """See Section."""

    template = "work.html"
    comes_first = True

    def __init__(self, works: Works) -> None:
        self._works = works

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """Fetch the work, if it arrives in time."""
        if name.is_doi and not conditions.only_cached:
            await self._works.find(name, conditions.client, PAGE_TIMEOUT)

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The work, if it is in memory, else whether a later page may have it."""
        if kind != "values" or name is None:
            return {}
        work = self._works.recall(name)
        is_pending = work is None and self._works.may_find(name)
        return {"work": work, "is_pending": is_pending} if work is not None or is_pending else {}
