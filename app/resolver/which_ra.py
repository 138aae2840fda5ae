"""Which RA: for each DOI name or prefix, the agency that registered it, or why none is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.doi.name import HandleName, fold
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

    async def rows(self, names: Sequence[tuple[str, HandleName | None]], client: ClientNetwork) -> list[dict[str, str]]:
        """A row for each name in its order: `{"DOI": …, "RA": …}` or `{"DOI": …, "status": …}`, spelled as asked.

        A name of None is not a name. Never raises: a row says that its name could not be verified. `client` is charged
        for every question.
        """
        request = _Request(
            # Slots of its own: the names of one request must not keep another request waiting.
            Lookup(self._resolver, client, concurrency=CONCURRENCY),
            self._agencies,
        )
        return list(await asyncio.gather(*(self._row(text, name, request) for text, name in names)))

    async def _row(self, text: str, name: HandleName | None, request: _Request) -> dict[str, str]:
        if name is None or not (name.is_doi or name.is_prefix):
            return {"DOI": text, "status": INVALID}
        try:
            return {"DOI": text} | await self._agency(name, request)
        except CouldNotVerify:
            return {"DOI": text, "status": COULD_NOT_VERIFY}

    async def _agency(self, name: HandleName, request: _Request) -> dict[str, str]:
        resolution = await request.lookup.resolve(name)
        if not resolution.found:
            return {"status": DOES_NOT_EXIST}
        services = await self._prefixes.services(name.prefix, request.lookup)
        found = agency_name([(one.name, one.record) for one in services])
        if found is None:
            found = await request.agency_of_prefix(name.prefix)
        return {"status": UNKNOWN} if found is None else {"RA": found}


class _Request:
    """The upstream questions of one request; the upstream's Which RA service gets one for each prefix."""

    def __init__(self, lookup: Lookup, agencies: AgencySource | None) -> None:
        self.lookup = lookup
        self._agencies = agencies
        self._questions: dict[str, asyncio.Task[str | None]] = {}

    async def agency_of_prefix(self, prefix: str) -> str | None:
        """What the upstream's own service says; None if there is none or it does not know. Raises CouldNotVerify."""
        if self._agencies is None:
            return None
        question = self._questions.get(fold(prefix))
        if question is None:
            question = self._questions[fold(prefix)] = asyncio.create_task(self._query(self._agencies, prefix))
        return await question

    async def _query(self, agencies: AgencySource, prefix: str) -> str | None:
        async with self.lookup.slots:
            rows = await agencies.registration_agencies([prefix], self.lookup.client)
        return rows[0].get("RA") if rows else None
