"""The registered names near a name, by local records and both tiers of the cache. No upstream is queried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from doi_names.name import HandleName
from doi_proxy.cache.store import NearKeys, SearchableStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import PrefixDenied, StoreError
from doi_proxy.resolver.resolver import Resolver
from handle_protocol.answer import ResponseCode


@dataclass(frozen=True, slots=True)
class NearNames:
    """Keys near a name: candidates that were cached, and those of local and registry records with their neighbours."""

    cached: Sequence[str]
    published: Sequence[str]
    #: In order, the nearest first.
    before: Sequence[str]
    after: Sequence[str]


class NameSearch:
    """Searches what this resolver knows. Raises nothing."""

    def __init__(self, resolver: Resolver, cache: TieredStore, clock: Callable[[], float]) -> None:
        self._resolver = resolver
        self._cache = cache
        self._clock = clock

    async def find_near(self, name: HandleName, candidates: Sequence[str]) -> NearNames:
        """The candidates that local records and the cache have, and the neighbours of the name."""
        kept = await _find_keys(self._cache, name.key, candidates)
        records = self._resolver.local_records
        local = None if records is None else records.find_near(name.key, candidates)
        known, before, after = local or ([], [], [])
        return NearNames(
            cached=kept.known,
            published=[*known, *kept.records],
            before=sorted({*before, *kept.before}, reverse=True),
            after=sorted({*after, *kept.after}),
        )

    async def is_registered(self, name: HandleName) -> bool:
        """Whether the operator or the cache says that the name exists, however old that is."""
        records = self._resolver.local_records
        try:
            local = None if records is None else records.resolve(name, self._clock())
        except PrefixDenied:
            return False
        if local is not None:
            return local.tombstone is None and local.is_registered
        entry = await self._cache.get(name.key)
        return entry is not None and entry.answer.code is ResponseCode.SUCCESS


async def _find_keys(cache: TieredStore, key: str, candidates: Sequence[str]) -> NearKeys:
    """What memory and the store have of the candidates, and the registry keys next to `key`.

    A Valkey server is not searched: it would be a message of 50 kB for each page.
    """
    found, store = NearKeys(), cache.store
    if isinstance(store, SearchableStore):
        try:
            found = await store.find_near(key, candidates)
        except StoreError:
            found = NearKeys()  # a request that needs the store reports it
    recent = cache.memory.list_known(candidates)
    return replace(found, known=list(dict.fromkeys([*found.known, *recent])))
