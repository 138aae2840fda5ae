"""Which RA: the registration agency of each DOI name or prefix, or the reason why it is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from doi_names.name import HandleName, fold
from doi_proxy.errors import CouldNotVerify, UpstreamTimeout
from doi_proxy.resolver.claims import Standing, find_standing
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.resolver.single_flight import await_shielded
from doi_proxy.upstream.source import AgencySource

#: Names of one request that are looked up at a time.
CONCURRENCY: Final = 8
#: The statuses of the Which RA service. The last one is an addition of this program.
INVALID: Final = "Invalid DOI"
DOES_NOT_EXIST: Final = "DOI does not exist"
UNKNOWN: Final = "Unknown"
COULD_NOT_VERIFY: Final = "Could not verify"


class WhichRa:
    """Finds the registration agencies of names."""

    def __init__(self, resolver: Resolver, prefixes: PrefixChain, agencies: AgencySource | None) -> None:
        """`agencies` is the Which RA service of the upstream. It is queried if the records have no agency."""
        self._resolver = resolver
        self._prefixes = prefixes
        self._agencies = agencies

    async def rows(
        self, names: Sequence[tuple[str, HandleName | None]], conditions: Conditions
    ) -> list[dict[str, str]]:
        """Return a row per name, in order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`.

        `names` are pairs of the client's spelling, which the row repeats, and the name, None for an invalid one. Does
        not raise: if a name could not be verified, its row says so. The conditions hold for each name.
        """
        request = _Request(self._agencies, conditions)
        try:
            return list(await asyncio.gather(*(self._row(text, name, request) for text, name in names)))
        finally:
            request.cancel()

    async def _row(self, text: str, name: HandleName | None, request: _Request) -> dict[str, str]:
        if name is None or not (name.is_doi or name.is_prefix):
            return {"DOI": text, "status": INVALID}
        try:
            async with request.slots:
                return {"DOI": text} | await self._agency(name, request)
        except CouldNotVerify:
            return {"DOI": text, "status": COULD_NOT_VERIFY}

    async def _agency(self, name: HandleName, request: _Request) -> dict[str, str]:
        resolution = await self._resolver.resolve(name, request.conditions)
        if find_standing(resolution) is Standing.NOT_REGISTERED:
            return {"status": DOES_NOT_EXIST}
        found = await self._prefixes.find_agency(name.prefix, request.conditions)
        if found is None:
            found = await request.agency_of_prefix(name.prefix)
        return {"status": UNKNOWN} if found is None else {"RA": found}


class _Request:
    """The upstream queries of one request. The Which RA service gets one query per prefix."""

    def __init__(self, agencies: AgencySource | None, conditions: Conditions) -> None:
        self.conditions = conditions
        #: Each request has its own slots, so one with many names does not delay another.
        self.slots = asyncio.Semaphore(CONCURRENCY)
        self._agencies = agencies
        self._queries: dict[str, asyncio.Task[str | None]] = {}

    async def agency_of_prefix(self, prefix: str) -> str | None:
        """Query the upstream's Which RA service. None if there is none, or it has no answer. Raises CouldNotVerify."""
        if self._agencies is None:
            return None
        query = self._queries.get(fold(prefix))
        if query is None:
            query = self._queries[fold(prefix)] = asyncio.create_task(self._query(self._agencies, prefix))
        try:
            return await await_shielded(query, self.conditions.due)
        except TimeoutError:
            raise UpstreamTimeout from None

    def cancel(self) -> None:
        """End the queries that no row waits for any more."""
        for query in self._queries.values():
            if not query.done():
                query.cancel()
            elif not query.cancelled():
                query.exception()  # the rows have said it

    async def _query(self, agencies: AgencySource, prefix: str) -> str | None:
        rows = await agencies.registration_agencies([prefix], self.conditions.client)
        return rows[0].get("RA") if rows else None
