"""Which answers a signature must prove, and which cached ones prove themselves: all that the resolver decides of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeGuard

from doi_proxy.cache.entry import Entry, loses_proof
from doi_proxy.resolver.options import Conditions
from doi_proxy.upstream.source import Verification


def needs_proof(certified: bool, verification: Verification) -> bool:
    """Whether a signature must prove an answer: if the request says so (`certified`), or always."""
    return verification == "always" or (certified and verification != "never")


def proves(entry: Entry | None, now: float, max_age: float | None = None) -> TypeGuard[Entry]:
    """Whether an entry answers `cert`: it is verified, fresh, and at most `max_age` seconds old."""
    if entry is None or not entry.is_proof(now):
        return False
    return max_age is None or now - entry.fetched_at <= max_age


@dataclass(frozen=True, slots=True)
class Proofs:
    """The decisions about proofs, by the setting which answers of the source are verified."""

    #: It is "never" for a source of HTTP APIs.
    verification: Verification = "never"

    @property
    def are_checked(self) -> bool:
        """Whether the source checks signatures at all."""
        return self.verification != "never"

    def can_be_cached(self, conditions: Conditions) -> bool:
        """Whether a cached answer that proves itself meets conditions that bypass the cache."""
        return self.are_checked and conditions.certified and not conditions.authoritative

    def satisfy(self, entry: Entry, conditions: Conditions) -> bool:
        """Whether an entry has the proof that the conditions need."""
        return entry.answer.is_verified or not needs_proof(conditions.certified, self.verification)

    def protect(self, known: Entry | None, entry: Entry, now: float) -> TypeGuard[Entry]:
        """Whether a known entry must stay, because the new one does not prove itself as it does."""
        return self.are_checked and loses_proof(known, entry, now)

    def must_certify(self, conditions: Conditions, known: Entry | None, now: float) -> bool:
        """Whether a query requests a signature: an answer without one could not replace a known proof."""
        return conditions.certified or (self.are_checked and proves(known, now))


#: No answer is verified.
UNPROVEN: Final = Proofs()
