"""The registration agencies of the names of one batch, looked up once for each prefix."""

from __future__ import annotations

from typing import Final, Literal

from app.doi.name import HandleName, fold
from app.errors import CouldNotVerify, InvalidName
from app.resolver.lookup import Lookup
from app.resolver.prefix_chain import PrefixChain
from app.resolver.registration_agency import agency_name
from app.resolver.resolver import Resolver
from app.upstream.source import ClientNetwork, Priority

#: Prefixes that are remembered. A list of 100,000 names has about 3,000.
MAX_PREFIXES: Final = 10_000


class AgencyLookup:
    """Finds agencies in the records of prefixes and service handles."""

    def __init__(
        self,
        resolver: Resolver,
        prefixes: PrefixChain,
        client: ClientNetwork,
        sources: Literal["none", "cached", "any"],
    ) -> None:
        """`sources` decides whether prefixes are looked up: not at all, in the cache alone, or upstream too."""
        self._prefixes = prefixes
        self._is_off = sources == "none"
        self._lookup = Lookup(resolver, client, Priority.BULK, only_cached=sources == "cached")
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
            services = await self._prefixes.services(name.prefix, self._lookup)
        except (CouldNotVerify, InvalidName):
            services = []
        if len(self._agencies) >= MAX_PREFIXES:
            self._agencies.clear()
        agency = self._agencies[fold(name.prefix)] = agency_name([(one.name, one.record) for one in services])
        return agency
