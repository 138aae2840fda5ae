"""The records of prefixes and service handles in the cache, for the directory of handle servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.cache.entry import RegistryEntry
from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.errors import InvalidName
from app.features.native.service_records import StoredRecord
from app.handle.answer import Answer, ResponseCode
from app.resolver.resolution import TtlPolicy

_PREFIX_RECORDS: Final = "0.NA/"


class CachedRecords:
    """See RecordStore. The entries are like those of the resolver, which looks up 0.NA/10.1000 as 10.1000.

    `clock` returns seconds since the epoch.
    """

    def __init__(self, cache: TieredStore, policy: TtlPolicy, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._policy = policy
        self.clock = clock

    async def load(self, handle: bytes) -> StoredRecord | None:
        """The record of a handle, even if it is stale.

        "Not found" is not loaded: all names of a prefix would be "not found" by it, for as long as it is fresh.
        """
        name = _read_name(handle)
        # Another process may have looked it up again, while the copy in memory is fresh by the record's own TTL.
        entry = None if name is None else await self._cache.reread(name.key)
        if entry is None or isinstance(entry, RegistryEntry) or entry.answer.code is not ResponseCode.SUCCESS:
            return None
        return StoredRecord(entry.answer.values, entry.fetched_at, entry.fresh_until, entry.answer.is_verified)

    async def save(self, handle: bytes, answer: Answer, *, sent_at: float, fetched_at: float) -> None:
        """Put an answer into the cache. One without a signature does not replace a fresh record that has one."""
        name = _read_name(handle)
        if name is None:
            return
        known = await self._cache.reread(name.key)
        if known is not None and known.is_proof(self.clock()) and not answer.is_verified:
            return
        agrees = known is None or isinstance(known, RegistryEntry) or known.answer.agrees_with(answer)
        await self._cache.put(self._policy.entry(name.key, answer, fetched_at), announce=not agrees, sent_at=sent_at)


def _read_name(handle: bytes) -> HandleName | None:
    """The name of a handle. None if it cannot be a key of the cache."""
    try:
        name = HandleName(handle.decode())
        prefix = name.text[len(_PREFIX_RECORDS) :]
        # Servers answer both names with the same record (see `read_answer`).
        is_prefix = name.key.startswith(_PREFIX_RECORDS) and "/" not in prefix
        return HandleName(prefix) if is_prefix else name
    except (UnicodeDecodeError, InvalidName):
        return None
