"""An answer about one name, the decisions about it that need no I/O, and the chain of its aliases.

An alias is a name that stands for another one (RFC 3651, section 3.2: HS_ALIAS).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import AliasChainTooLong, CouldNotVerify, as_unverified
from doi_proxy.resolver.options import ResolveOptions
from handle_protocol.answer import Answer, ResponseCode
from handle_protocol.errors import UnusableAnswer
from handle_protocol.record import Record, parse_record

#: Limit of aliases that are followed for one name.
MAX_ALIASES: Final = 20
#: Agencies of the service handles that have no 10320/ra_name value.
KNOWN_SERVICES: Final = {
    "10.SERV/CROSSREF": "Crossref",
    "10.SERV/DEFAULT": "Crossref",
    "10.SERV/DATACITE": "DataCite",
    "10.SERV/ETH": "DataCite",
    "10.SERV/MEDRA": "mEDRA",
    "10.SERV/JALC": "JaLC",
    "10.SERV/ISTIC": "ISTIC",
    "10.SERV/KISTI": "KISTI",
    "10.SERV/EIDR": "EIDR",
    "10.SERV/AIRITI": "Airiti",
    "10.SERV/CNKI": "CNKI",
    "10.SERV/OP": "OP",
}


class Origin(Enum):
    """The source of an answer."""

    HIT = "hit"  # fresh, from the cache
    STALE = "stale"  # past its TTL, from the cache, because the upstream failed or was not queried
    ASKED = "asked"  # from the upstream; the cache had no answer
    RENEWED = "renewed"  # from the upstream, in place of an answer past its TTL
    JOINED = "joined"  # from the upstream, by the query of another request
    BYPASSED = "bypassed"  # from the upstream, because the request bypasses the cache
    RELOADED = "reloaded"  # from the upstream, because the cached answer was older than the request allows
    LOCAL = "local"  # from the operator's local records
    REGISTRY = "registry"  # from a registration agency's file, because the upstream failed or was not queried


#: Names of members that many answers need. Python 3.11 takes 900 instructions to look up a member in its class.
HIT: Final = Origin.HIT
REGISTRY: Final = Origin.REGISTRY
_NOT_FOUND: Final = ResponseCode.HANDLE_NOT_FOUND
#: The origins of answers that the upstream has not confirmed for longer than their TTL.
UNCONFIRMED: Final = frozenset({Origin.STALE, REGISTRY})
#: The origins of answers without a query, which `Resolver.resolve_now` can repeat.
CACHED: Final = (HIT, Origin.LOCAL, Origin.STALE, REGISTRY)


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """Why the operator says that a name is gone, and since when: a date in ISO 8601."""

    reason: str
    date: str


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """An answer about a name: its entry, the source of the entry and, if it is stale, the reason."""

    name: HandleName
    entry: Entry
    origin: Origin
    #: It has no traceback: its frames hold this object, and the garbage collector does not look into it.
    failure: CouldNotVerify | None = None
    #: Why there is no record, if a local record says so.
    tombstone: Tombstone | None = None
    #: Whether a detour can replace the redirect. A local record can exempt its name.
    allows_detour: bool = True

    @property
    def is_registered(self) -> bool:
        """Whether the name is registered. It may still have no public values."""
        return self.entry.answer.code is not _NOT_FOUND

    @property
    def is_verified(self) -> bool:
        """Whether a handle server's signature proves the answer. It proves a record for its TTL only."""
        return self.entry.answer.is_verified and self.origin not in UNCONFIRMED

    @property
    def agency(self) -> str | None:
        """The agency whose file the record is from. "" if the file does not name it; None for any other record."""
        return self.entry.agency

    @property
    def record(self) -> Record:
        """The values of the name. Raises InvalidAnswer."""
        return read_record(self.entry.answer.values)


def read_record(values: bytes) -> Record:
    """The record of an entry, given the JSON array of its values. Raises InvalidAnswer if a store has damaged it."""
    try:
        return parse_record(values)
    except UnusableAnswer as error:
        raise as_unverified(error) from error


def stale_origin(entry: Entry) -> Origin:
    """The origin of an entry past its TTL that is used because the upstream failed or was not queried."""
    return Origin.STALE if entry.is_confirmed else REGISTRY


def renewal_origin(entry: Entry) -> Origin:
    """The origin of an answer of the upstream in place of an entry past its TTL. A registry record counts as none."""
    return Origin.RENEWED if entry.is_confirmed else Origin.ASKED


@dataclass(frozen=True, slots=True)
class TtlPolicy:
    """Limits, in seconds. If `ceiling` is below `floor`, `ceiling` counts."""

    floor: float
    ceiling: float
    negative: float
    grace: float

    def entry(self, key: str, answer: Answer, fetched_at: float) -> Entry:
        """The cache entry of an answer that arrived at `fetched_at`, in seconds since the epoch.

        A record is fresh until the first TTL of its values ends, and may be served stale during the grace after that.
        "Not found" and "no values" are fresh for the negative TTL and never served stale: only a recent answer may
        say that a DOI name does not exist. That of a prefix is kept during the grace, for the names under it.
        """
        if answer.code is not ResponseCode.SUCCESS:
            ends = fetched_at + self.negative
            kept_until = ends if "/" in key else ends + self.grace
            return Entry(key=key, answer=answer, fetched_at=fetched_at, fresh_until=ends, stale_until=kept_until)
        lifetime = read_record(answer.values).ends_at(fetched_at) - fetched_at
        ends = fetched_at + min(max(lifetime, self.floor, 0.0), self.ceiling)
        return Entry(key=key, answer=answer, fetched_at=fetched_at, fresh_until=ends, stale_until=ends + self.grace)


class Step(Enum):
    """The next step for a name."""

    ANSWER = "answer"  # the cached answer is fresh
    ANSWER_AND_REFRESH = "refresh"  # it is fresh, and popular enough to be refreshed before it expires
    ANSWER_STALE = "stale"  # it is past its TTL, and the upstream failed a moment ago
    FETCH_WITH_FALLBACK = "fallback"  # query the upstream; if it fails or is slow, answer stale
    FETCH = "fetch"


#: The last part of an entry's lifetime, in which it may be refreshed early.
REFRESH_WINDOW = 0.1


def next_step(entry: Entry | None, now: float, *, failed_recently: bool, popular: bool) -> Step:
    """Decide from the cached entry. `now` is in seconds since the epoch."""
    if entry is None:
        return Step.FETCH
    if entry.is_fresh(now):
        return Step.ANSWER_AND_REFRESH if popular and now >= refresh_from(entry) else Step.ANSWER
    if not entry.is_usable(now):
        return Step.FETCH
    return Step.ANSWER_STALE if failed_recently else Step.FETCH_WITH_FALLBACK


def refresh_from(entry: Entry) -> float:
    """The start of an entry's refresh window, in seconds since the epoch."""
    life = entry.fresh_until - entry.fetched_at
    return entry.fresh_until - life * REFRESH_WINDOW if life > 0 else entry.fresh_until


def must_confirm(known: Entry | None, fresh: Entry, now: float) -> bool:
    """Whether `fresh` is a "not found" that contradicts the `known` record. An authoritative query must confirm it."""
    return (
        known is not None
        and known.is_usable(now)
        and known.answer.code is not ResponseCode.HANDLE_NOT_FOUND
        and fresh.answer.code is ResponseCode.HANDLE_NOT_FOUND
    )


class Chain(msgspec.Struct, frozen=True, gc=False):
    """The resolutions from the requested name to one that is not an alias or not found."""

    #: The resolution at the end of the chain.
    last: Resolution
    #: Those of the aliases that led to it, in order.
    aliases: tuple[Resolution, ...] = ()

    @property
    def resolutions(self) -> tuple[Resolution, ...]:
        """All of them, in order."""
        return (*self.aliases, self.last)

    @property
    def is_alias(self) -> bool:
        """Whether any alias was followed."""
        return bool(self.aliases)

    @property
    def is_verified(self) -> bool:
        """Whether signatures prove the whole chain."""
        return all(resolution.is_verified for resolution in self.resolutions)

    def then(self, resolution: Resolution) -> Chain:
        """A copy of the chain with one more resolution."""
        return Chain(resolution, self.resolutions)


def next_alias_target(chain: Chain, record: Record, options: ResolveOptions) -> HandleName | None:
    """The name that the end of the chain stands for. None if it is not an alias, or may not be followed.

    Only the selected values count, which `record` has: `type=URL` hides an alias. Raises AliasChainTooLong for a loop,
    and for more than MAX_ALIASES aliases.
    """
    values = () if options.ignore_aliases else record.of_type("HS_ALIAS.")
    if not values:
        return None
    try:
        name = HandleName((values[0].text or "").strip())
    except InvalidName:
        return None
    if len(chain.aliases) >= MAX_ALIASES or any(name == alias.name for alias in chain.resolutions):
        raise AliasChainTooLong(reached=chain.last.name.text)
    return name


def read_agency(services: Sequence[Resolution]) -> str | None:
    """The agency's name in the service handles of a prefix: in 10320/ra_name, else by the known handles."""
    for service in services:
        for value in service.record.of_type("10320/ra_name"):
            if value.text and value.text.strip():
                return value.text.strip()
    return next((KNOWN_SERVICES[key] for service in services if (key := service.name.key) in KNOWN_SERVICES), None)
