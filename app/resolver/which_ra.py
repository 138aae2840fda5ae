"""Which RA: for each DOI name or prefix, the agency that registered it, or why none is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.doi.name import HandleName
from app.errors import CouldNotVerify
from app.resolver.lookup import Lookup
from app.resolver.prefix_chain import PrefixChain
from app.resolver.registration_agency import COULD_NOT_VERIFY, DOES_NOT_EXIST, INVALID, UNKNOWN, agency_name
from app.resolver.resolver import Resolver
from app.upstream.source import AgencySource, ClientNetwork

#: Upstream questions of one request that wait or are under way at the same time.
CONCURRENCY: Final = 8


class WhichRa:
    """Answers which registration agency names belong to."""

    def __init__(self, resolver: Resolver, prefixes: PrefixChain, agencies: AgencySource | None) -> None:
        """`agencies` is the upstream's own Which RA service, for prefixes whose records do not tell."""
        self._resolver = resolver
        self._prefixes = prefixes
        self._agencies = agencies

    async def rows(self, asked: Sequence[tuple[str, HandleName | None]], client: ClientNetwork) -> list[dict[str, str]]:
        """A row for each name in its order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`, spelled as asked.

        A name of None is not a name. Never raises: a row says that its name could not be verified. `client` is charged
        for every question.
        """
        # Slots of its own: the names of one request must not keep another request waiting.
        lookup = Lookup(self._resolver, client, concurrency=CONCURRENCY)
        return list(await asyncio.gather(*(self._row(text, name, lookup) for text, name in asked)))

    async def _row(self, text: str, name: HandleName | None, lookup: Lookup) -> dict[str, str]:
        if name is None or not (name.is_doi or name.is_prefix):
            return {"DOI": text, "status": INVALID}
        try:
            return {"DOI": text} | await self._agency(name, lookup)
        except CouldNotVerify:
            return {"DOI": text, "status": COULD_NOT_VERIFY}

    async def _agency(self, name: HandleName, lookup: Lookup) -> dict[str, str]:
        resolution = await lookup.resolve(name)
        if not resolution.found:
            return {"status": DOES_NOT_EXIST}
        services = await self._prefixes.services(name.prefix, lookup)
        found = agency_name([(one.name, one.record) for one in services])
        if found is None and self._agencies is not None:
            found = await self._from_upstream(name, self._agencies, lookup)
        return {"status": UNKNOWN} if found is None else {"RA": found}

    async def _from_upstream(self, name: HandleName, agencies: AgencySource, lookup: Lookup) -> str | None:
        async with lookup.slots:
            rows = await agencies.registration_agencies([name.prefix], lookup.client)
        return rows[0].get("RA") if rows else None
