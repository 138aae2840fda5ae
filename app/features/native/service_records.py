"""Services that are kept as records of the cache: the record of a prefix, or of a service handle.

They survive a restart, and all processes that share a store need one lookup. The record is the usual one of its name,
so other parts of the program use it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.errors import CouldNotVerify, InvalidAnswer
from app.features.native.directory_limits import DirectoryLimits
from app.features.native.json_sites import read_service_values
from app.features.native.referral import read_lead
from app.features.native.service_cache import ServiceEntry
from app.features.native.source import read_response
from app.features.native.wire.response import Response
from app.handle.answer import Answer
from app.handle.record import parse_record


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of the cache: the JSON array of its values, and its times in seconds since the epoch."""

    values: bytes
    fetched_at: float
    fresh_until: float
    #: Whether a chain of signatures from the root proves it.
    is_verified: bool


class RecordStore(Protocol):
    """The cache. Its methods do not raise."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of the records' times, in seconds since the epoch."""

    async def load(self, handle: bytes) -> StoredRecord | None:
        """The record of a handle, even if it is stale. None if there is none, or if the handle does not exist."""

    async def save(self, handle: bytes, answer: Answer, *, sent_at: float, fetched_at: float) -> None:
        """Keep an answer. Its query was sent at `sent_at`, and it arrived at `fetched_at`, in seconds of the epoch."""


class ServiceRecords:
    """Reads and writes service lookups as records. `max_bytes` is for the values of a record as JSON."""

    def __init__(self, store: RecordStore, *, limits: DirectoryLimits, max_bytes: int) -> None:
        self._store = store
        self._limits = limits
        self._max_bytes = max_bytes

    async def load(self, record: bytes) -> ServiceEntry | None:
        """The lookup that the cache has. None if it has none that names a service.

        Its times are those of a lookup at `fetched_at`: a record of the cache does not count for longer.
        """
        stored = await self._store.load(record)
        if stored is None:
            return None
        try:
            values = read_service_values(parse_record(stored.values))
        except InvalidAnswer:
            return None
        lead = read_lead(values, stored.fetched_at)
        if lead is None:
            return None
        # An operator can expire a record before its TTL ends.
        due_at = min(stored.fetched_at + self._limits.bound(lead.lifetime), stored.fresh_until)
        return ServiceEntry(lead, stored.is_verified, stored.fetched_at, due_at, due_at + self._limits.grace)

    async def save(self, record: bytes, response: Response, entry: ServiceEntry, *, sent_at: float) -> None:
        """Keep the record that an answer has, with the time of its lookup."""
        try:
            answer = read_response(response, self._max_bytes, is_verified=entry.is_verified)
        except CouldNotVerify:
            return  # It is too long as JSON. This process remembers the service.
        await self._store.save(record, answer, sent_at=sent_at, fetched_at=entry.fetched_at)
