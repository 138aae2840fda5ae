"""The services that a directory knows: where the records of prefixes and of service handles lead."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from handle_protocol.referral import Lead
from handle_protocol.wire.response import SignedAnswer

#: Bytes of a proof that does not count as further services: two signed answers with a site and a key each.
_USUAL_PROOF_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """A service lookup. `lead` is None if the record does not exist. Times are in seconds since the epoch.

    From `due_at`, it is looked up again. Until `ends_at`, it is used if that fails.
    """

    lead: Lead | None
    is_verified: bool
    fetched_at: float
    due_at: float
    ends_at: float
    #: The signed answers that prove it. None if they are not known.
    proof: tuple[SignedAnswer, ...] | None = None

    @property
    def weight(self) -> int:
        """The memory that this takes, in usual services."""
        proof = (
            sum(len(signed_answer.request) + len(signed_answer.answer) for signed_answer in self.proof or ())
            // _USUAL_PROOF_BYTES
        )
        return proof + (self.lead.weight if self.lead else 1)


class ServiceCache:
    """A bounded memory of service lookups. The one that was used least recently is dropped first.

    A verified and an unverified lookup of one record are kept side by side: an unsigned answer does not replace proof.
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of usual services; a large one counts as several."""
        self._most = most
        self._weight = 0
        #: Entries that lead to a service. The others are records that do not exist.
        self._leads = 0
        self._entries: OrderedDict[tuple[bytes, bool], ServiceEntry] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether no service is known."""
        return not self._leads

    def find(self, record: bytes, now: float, *, certified: bool) -> ServiceEntry | None:
        """The usable lookup of a record that is due last. With `certified`, it was verified."""
        keys = [(record.upper(), True)] + ([] if certified else [(record.upper(), False)])
        found = [key for key in keys if key in self._entries and now < self._entries[key].ends_at]
        if not found:
            return None
        last = max(found, key=lambda key: self._entries[key].due_at)
        self._entries.move_to_end(last)
        return self._entries[last]

    def last_lead(self, now: float) -> Lead | None:
        """The sites that were used last. None if no usable lookup has sites."""
        leads = (entry.lead for entry in reversed(self._entries.values()) if now < entry.ends_at)
        return next((lead for lead in leads if lead is not None and lead.sites), None)

    def put(self, record: bytes, entry: ServiceEntry) -> None:
        """Remember a lookup in place of the previous one."""
        key = (record.upper(), entry.is_verified)
        self._drop(key)
        self._entries[key] = entry
        self._weight += entry.weight
        self._leads += entry.lead is not None
        while self._weight > self._most:
            self._drop(next(iter(self._entries)))

    def make_due(self, record: bytes, now: float, *, older_than: float) -> bool:
        """Let a record be looked up again at its next use, if its lookup is old enough; also its service handles.

        Returns whether one will be.
        """
        handles, seen, is_due = [record.upper()], set[bytes](), False
        while handles:
            handle = handles.pop()
            seen.add(handle)
            for key in ((handle, True), (handle, False)):
                entry = self._entries.get(key)
                if entry is not None and entry.fetched_at <= older_than:
                    self._entries[key], is_due = replace(entry, due_at=min(entry.due_at, now)), True
                    names = entry.lead.service_handles if entry.lead else ()
                    handles += [name.upper() for name in names if name.upper() not in seen]
        return is_due

    def _drop(self, key: tuple[bytes, bool]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry.weight
            self._leads -= entry.lead is not None
