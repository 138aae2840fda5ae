"""The works that names lead to: in memory and in the store, and fetched from their agencies, four at a time of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final
from urllib.parse import urlsplit

from cachetools import LRUCache, TLRUCache

from doi_names.name import HandleName
from doi_proxy.cache.missed import WORKS
from doi_proxy.cache.store import scopes_of
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import FAILURES
from doi_proxy.features.feature import Core
from doi_proxy.features.metadata.cited import read_cited
from doi_proxy.features.metadata.client import CSL, MetadataClient, ServerFailure
from doi_proxy.features.metadata.match import Compared, NotCompared, match
from doi_proxy.features.metadata.work import KeptWork, Work, read_work, read_works, write_works
from doi_proxy.networks import AllowedAddresses
from doi_proxy.resolver.destination import DestinationQuery, Destinations
from doi_proxy.resolver.resolution import Conditions, ResolveOptions, name_media_type
from doi_proxy.resolver.target import href, matches, web_target
from doi_proxy.system.check import Service
from doi_proxy.system.options import Settings
from doi_proxy.system.version import read_version
from doi_proxy.upstream.client import identify
from doi_proxy.upstream.source import ClientNetwork, Priority
from doi_proxy.web.negotiation import negotiate
from doi_proxy.web.stage import PageKind, Section

#: Works in memory: about 1 KB each with their names.
MAX_WORKS: Final = 10_000
#: Seconds for which a work is kept.
TTL: Final = 7 * 86_400.0
#: After so many failures of a host in a row, it is left alone for half a minute.
HOST_FAILURES: Final = 3
_OPTIONS: Final = ResolveOptions(media_type=CSL)


class HostRests(ServerFailure):
    """The host is left alone, because it failed or asked for it."""


class _Host:
    """The fetches from one host: four at a time, three of them for lists. A host that fails or asks for it rests."""

    def __init__(self) -> None:
        self._places, self._places_of_lists = asyncio.Semaphore(4), asyncio.Semaphore(3)
        self._failures = 0
        self._rests_until = 0.0

    async def run(self, fetch: Callable[[str], Awaitable[bytes | None]], url: str, priority: Priority) -> bytes | None:
        """Fetch when there is a place. Raises ServerFailure, also while the host rests for long."""
        async with nullcontext() if priority is Priority.PERSON else self._places_of_lists, self._places:
            attempts = 3
            while True:
                attempts -= 1
                # A reader does not wait for the end of a longer rest.
                if (seconds := self._rests_until - time.monotonic()) > 10.0:
                    raise HostRests("the host is left alone")
                await asyncio.sleep(max(0.0, seconds))
                try:
                    body = await fetch(url)
                except ServerFailure as failure:
                    # A host that names a time is well, and answers then.
                    self._failures += failure.retry_after is None
                    usual = 30.0 if self._failures >= HOST_FAILURES else 0.0
                    rest = min(max(failure.retry_after or 0.0, usual), 300.0)
                    self._rests_until = max(self._rests_until, time.monotonic() + rest)
                    if failure.retry_after is None or not attempts:
                        raise
                else:
                    self._failures = 0
                    return body


class Works(Service):
    """Finds works. `fetch` returns the body at an address, None if it has none, or raises ServerFailure."""

    def __init__(
        self,
        destinations: Destinations,
        fetch: Callable[[str], Awaitable[bytes | None]],
        cache: TieredStore,
        count: Callable[[str], None] = lambda result: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`count` is called with the result of each fetch. `clock` is in seconds since the epoch."""
        self._destinations = destinations
        self._fetch = fetch
        self._cache = cache
        self._count = count
        self._clock = clock
        self._works: LRUCache[str, KeptWork] = LRUCache(MAX_WORKS)
        #: Those that are not in the note of the store yet.
        self._new: LRUCache[str, KeptWork] = LRUCache(MAX_WORKS)
        #: Names whose agency has no work, for five minutes; or did not answer or has no known address, for half of one.
        self._absent: TLRUCache[str, NotCompared] = TLRUCache(
            MAX_WORKS, ttu=lambda _, reason, now: now + (300.0 if reason == "none" else 30.0)
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hosts: LRUCache[str, _Host] = LRUCache(256)

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
        self, name: HandleName, client: ClientNetwork, timeout: float | None, priority: Priority = Priority.PERSON
    ) -> Work | None:
        """The work of a name, None if it is not known within `timeout` seconds. Raises nothing.

        A fetch that takes longer continues.
        """
        if (known := self.recall(name)) is not None or name.key in self._absent:
            return known
        task = self._tasks.get(name.key)
        if task is None:
            # Fetches that wait or are under way. At the limit, a page is sent without: an agency that takes seconds
            # answers one fetch in two seconds, and each page would wait, and leave a task behind.
            if timeout is not None and len(self._tasks) >= 256:
                self._count("refused")
                return None
            task = self._tasks[name.key] = asyncio.create_task(self._bring(name, client, priority))
            task.add_done_callback(lambda _: self._tasks.pop(name.key))
        await asyncio.wait((task,), timeout=timeout)
        return self.recall(name)

    async def compare(
        self, name: HandleName, reference: str, client: ClientNetwork, priority: Priority = Priority.BULK
    ) -> Compared:
        """Compare the reference of a list with the work of a name."""
        work = await self.find(name, client, None, priority)
        if work is None:
            return Compared(reason=self._absent.get(name.key, "failed"))
        return match(read_cited(reference), work)

    async def run(self) -> None:
        """Take the works of the store into memory, and add new ones to them. At the end, the cache is still open."""
        await self._cache.wait_for_store()
        await self.load()
        try:
            while True:
                # Seconds between two writes of the note.
                await asyncio.sleep(60.0)
                await self.save()
        finally:
            await self.save()

    async def stop(self) -> None:
        """Cancel the fetches, and return when they have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bring(self, name: HandleName, client: ClientNetwork, priority: Priority) -> None:
        """Fetch a work into memory. A host that is well, and busy, makes no name absent."""
        began_at = self._clock()
        try:
            url, names = await self._find_address(name, client)
            body = None
            if url is not None:
                host = self._hosts.setdefault(urlsplit(url).hostname or "", _Host())
                body = await host.run(self._fetch, url, priority)
        except (*FAILURES, ServerFailure) as failure:
            # Without the records of the prefix, the agency was not asked.
            self._absent[name.key] = "failed" if isinstance(failure, ServerFailure) else "address"
            self._count("refused" if isinstance(failure, HostRests) else "failed")
            return
        work = None if body is None else read_work(body, names)
        if work is None:
            self._absent[name.key] = "none"
        else:
            self._works[name.key] = self._new[name.key] = KeptWork(began_at, work)
        self._count("none" if work is None else "work")

    async def _find_address(self, name: HandleName, client: ClientNetwork) -> tuple[str | None, frozenset[str]]:
        """The address of the metadata that the agency names for the prefix, and the keys of the name and its aliases.

        A record's own locations do not count. Raises DoiProxyError.
        """
        negotiation = negotiate(CSL, None, False)
        conditions = Conditions(priority=Priority.BULK, client=client)
        found = await self._destinations.find(DestinationQuery(name, _OPTIONS, negotiation), conditions)
        keys = frozenset(resolution.name.key for resolution in found.resolution.chain)
        locations = found.locations.of_prefix.items
        for locatt in negotiation.locatts:
            for location in locations:
                url = href(location, found.resolution.name) if matches(location, *locatt) else None
                if url is not None:
                    return web_target(name_media_type(url.strip(), CSL)), keys
        return None, keys


class OpenWorks(Works):
    """The works, and the client that fetches them. Raises ConfigurationError."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        count: Callable[[str], None] = lambda result: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        authorities = None if settings.upstream_ca_bundle is None else str(settings.upstream_ca_bundle)
        identity = identify(f"doi-proxy/{read_version()}", settings.upstream_contact)
        self._client = MetadataClient(AllowedAddresses(settings.upstream_private_servers), identity, authorities)
        super().__init__(core.destinations, self._client.fetch, core.cache, count, clock)

    async def stop(self) -> None:
        """End the fetches, and close the connections."""
        await super().stop()
        await self._client.aclose()


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
