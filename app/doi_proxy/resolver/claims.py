"""What an answer lets this resolver say about a name. A page, JSON, a log line and a command say it by these functions.

Each is a function of the state alone. Those of a time or an age return None where the state does not say.
tests/resolver/test_claims.py has the states in which each claim holds, and those in which it does not. Times are in
seconds since the epoch.
"""

from __future__ import annotations

from enum import Enum

from doi_proxy.cache.entry import Entry
from doi_proxy.resolver.resolution import UNCONFIRMED, Origin, Resolution
from handle_protocol.answer import ResponseCode


class Standing(Enum):
    """What is known of a name. The values are those of texts and of JSON."""

    REGISTERED = "registered"  # an upstream, or the file of its registration agency, has its record
    NOT_REGISTERED = "missing"  # an upstream says so, within the TTL of such an answer
    WITHDRAWN = "withdrawn"  # an operator of this resolver says so
    SET_HERE = "set_here"  # an operator of this resolver has set its record; it need not be registered


class Currency(Enum):
    """How far an entry of the cache can be relied on. The values are those of JSON."""

    FRESH = "fresh"  # within its TTL
    STALE = "stale"  # past its TTL, and usable in an outage
    EXPIRED = "expired"  # past that too
    REGISTRY = "registry"  # from the file of a registration agency


def find_standing(resolution: Resolution) -> Standing:
    """What an answer says of its name: whether it is registered, not registered, or withdrawn."""
    if resolution.tombstone is not None:
        return Standing.WITHDRAWN
    if resolution.origin is Origin.LOCAL:
        return Standing.SET_HERE
    is_missing = resolution.entry.answer.code is ResponseCode.HANDLE_NOT_FOUND
    return Standing.NOT_REGISTERED if is_missing else Standing.REGISTERED


def is_up_to_date(resolution: Resolution) -> bool:
    """Whether an upstream or an operator stands behind the answer now: it is within its TTL, or has none."""
    return resolution.origin not in UNCONFIRMED


def find_currency(entry: Entry, now: float) -> Currency:
    """Whether an entry is fresh, stale or expired."""
    if not entry.is_confirmed:
        return Currency.REGISTRY
    if entry.is_fresh(now):
        return Currency.FRESH
    return Currency.STALE if entry.is_usable(now) else Currency.EXPIRED


def dated_at(entry: Entry) -> float | None:
    """When an upstream gave the answer, or the date of the record in the file of its registration agency.

    A record of an operator has no such time, nor has an imported record without times, nor one of the future: its
    clock was wrong.
    """
    return entry.fetched_at or None


def confirmed_at(entry: Entry) -> float | None:
    """When an upstream confirmed the record. The file of a registration agency confirms nothing."""
    return dated_at(entry) if entry.is_confirmed else None


def age(entry: Entry, now: float) -> int | None:
    """Whole seconds since `dated_at`; 0 if the clock was set back to an earlier time."""
    return None if dated_at(entry) is None else int(entry.age(now))


def fresh_until(entry: Entry) -> float | None:
    """The end of the TTL."""
    return entry.fresh_until or None


def out_of_date_since(entry: Entry, now: float) -> float | None:
    """When the TTL ended. None also for a record within it."""
    end = fresh_until(entry)
    return None if end is None or end > now else end
