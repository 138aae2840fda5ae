"""Services that are kept as records of the cache: the record of a prefix, or of a service handle.

They survive a restart, and all processes that share a store need one lookup. The record is the usual one of its name,
so other parts of the program use it too: the resolver looks up 0.NA/10.1000 as 10.1000.
"""

from __future__ import annotations

from dataclasses import dataclass

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.prefix_record import PREFIX_RECORDS
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.resolver.resolution import TtlPolicy
from handle_protocol.answer import ResponseCode
from handle_protocol.errors import HandleProtocolError, UnusableAnswer
from handle_protocol.json_sites import read_service_values
from handle_protocol.lookups import DirectoryLimits
from handle_protocol.native_answer import read_response
from handle_protocol.proof import read_proof
from handle_protocol.record import parse_record
from handle_protocol.referral import read_lead
from handle_protocol.service_cache import ServiceEntry
from handle_protocol.wire.response import Response


@dataclass(frozen=True, slots=True)
class ServiceRecords:
    """Reads and writes service lookups as records of the cache."""

    cache: TieredStore
    policy: TtlPolicy
    limits: DirectoryLimits

    async def load(self, record: bytes) -> ServiceEntry | None:
        """The lookup that the cache has, even if it is stale. None if it has none that names a service.

        Its times are those of a lookup at `fetched_at`: a record of the cache does not count for longer. "Not found" is
        not loaded: all names of a prefix would be "not found" by it, for as long as it is fresh.
        """
        name = _read_name(record)
        # Another process may have looked it up again, while the copy in memory is fresh by the record's own TTL.
        entry = None if name is None else await self.cache.get(name.key, newest=True)
        if entry is None or not entry.is_confirmed or entry.answer.code is not ResponseCode.SUCCESS:
            return None
        try:
            values = read_service_values(parse_record(entry.answer.values))
        except UnusableAnswer:
            return None
        lead = read_lead(values, entry.fetched_at)
        if lead is None:
            return None
        # An operator can expire a record before its TTL ends.
        due_at = min(entry.fetched_at + self.limits.bound(lead.lifetime), entry.fresh_until)
        proof = read_proof(entry.answer)
        return ServiceEntry(lead, entry.answer.is_verified, entry.fetched_at, due_at, due_at + self.limits.grace, proof)

    async def save(self, record: bytes, response: Response, found: ServiceEntry, *, sent_at: float) -> None:
        """Put the record that an answer has into the cache, with the time of its lookup.

        The cache refuses one without a signature in place of a fresh record that has one.
        """
        try:
            answer = read_response(response, is_verified=found.is_verified)
        except HandleProtocolError:
            return  # It is too long as JSON. This process remembers the service.
        name = _read_name(record)
        if name is None:
            return
        known = await self.cache.get(name.key, newest=True)
        agrees = known is None or not known.is_confirmed or known.answer.agrees_with(answer)
        entry = self.policy.entry(name.key, answer, found.fetched_at)
        await self.cache.put(entry, announce=not agrees, sent_at=sent_at)


def _read_name(handle: bytes) -> HandleName | None:
    """The name of a handle. None if it cannot be a key of the cache."""
    try:
        name = HandleName(handle.decode())
        prefix = name.text[len(PREFIX_RECORDS) :]
        # Servers answer both names with the same record (see `read_answer`).
        is_prefix = name.key.startswith(PREFIX_RECORDS) and "/" not in prefix
        return HandleName(prefix) if is_prefix else name
    except (UnicodeDecodeError, InvalidName):
        return None
