"""An answer about one name, the decisions about it that need no I/O, and the chain of its aliases.

An alias is a name that stands for another one (RFC 3651, section 3.2: HS_ALIAS).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from ipaddress import IPv4Address, IPv6Address
from math import inf
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import AliasChainTooLong, CouldNotVerify, as_unverified
from doi_proxy.upstream.source import ClientNetwork, Priority, Verification
from handle_protocol.errors import UnusableAnswer
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import Record, parse_record

#: The media type of each format. The agencies publish which ones they offer: all have BibTeX, RIS and CSL JSON.
MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bibtex": "application/x-bibtex",
        "ris": "application/x-research-info-systems",
        "csl": "application/vnd.citationstyles.csl+json",
        "csl-json": "application/vnd.citationstyles.csl+json",
        "text": "text/x-bibliography",
        "turtle": "text/turtle",
        "rdf": "application/rdf+xml",
        "jsonld": "application/vnd.schemaorg.ld+json",
        "schemaorg": "application/vnd.schemaorg.ld+json",
        "codemeta": "application/vnd.codemeta.ld+json",
        "crossref": "application/vnd.crossref.unixsd+xml",
        "unixref": "application/vnd.crossref.unixref+xml",
        "datacite": "application/vnd.datacite.datacite+xml",
        "datacite-json": "application/vnd.datacite.datacite+json",
        "jats": "application/vnd.jats+xml",
    }
)
#: Crossref's address of the metadata of a work. The media type may follow.
_CROSSREF: Final = re.compile(r"https?://api\.crossref\.org/(?:v1/)?works/[^?#]+/transform", re.IGNORECASE)
#: DataCite's. The media type may precede the name.
_DATACITE: Final = re.compile(r"(https?://data\.(?:datacite|crosscite)\.org)(/10\.[^?#]+)", re.IGNORECASE)


def name_media_type(url: str, media_type: str) -> str:
    """The address of metadata with the media type in its path, where the agency has such addresses.

    A redirect cannot send an `Accept` for the client. Any other address stays as it is.
    """
    if _CROSSREF.fullmatch(url):
        return f"{url}/{media_type}"
    datacite = _DATACITE.fullmatch(url)
    return url if datacite is None else f"{datacite[1]}/{media_type}{datacite[2]}"


#: A location attribute to select by. Without a value, it selects every location that has the attribute.
Locatt = tuple[str, str | None]


class Action(Enum):
    """What to do with the record. An unknown action is a redirect."""

    REDIRECT = "redirect"
    SHOW_VALUES = "showvalues"
    SHOW_URLS = "showurls"
    API = "api"


@dataclass(frozen=True, slots=True)
class ResolveOptions:
    """The options of a request for a name. Without options, it is a redirect to the target of the name."""

    action: Action = Action.REDIRECT
    types: tuple[str, ...] = ()
    indexes: tuple[int, ...] = ()
    authoritative: bool = False
    certified: bool = False
    ignore_aliases: bool = False
    redirection_headers: bool = False
    urlappend: str | None = None
    locatts: tuple[Locatt, ...] = ()
    country: str | None = None
    #: The metadata format that is requested. It takes the place of Accept.
    media_type: str | None = None

    @property
    def bypasses_cache(self) -> bool:
        """Whether only an answer that is fetched now will do."""
        return self.authoritative or self.certified

    @property
    def is_filtered(self) -> bool:
        """Whether the request selects some of the values."""
        return bool(self.types or self.indexes)


#: A request without options.
DEFAULT_OPTIONS = ResolveOptions()


class ClientFact(Flag):
    """A fact about a client that can decide which location it gets. Chance is drawn for each request."""

    ADDRESS = auto()
    COUNTRY = auto()
    CHANCE = auto()
    ACCEPT = auto()
    LANGUAGE = auto()
    USER_AGENT = auto()
    COOKIE = auto()


#: The answer is the same for every client.
NO_FACTS = ClientFact(0)


@dataclass(frozen=True, slots=True)
class Negotiation:
    """How a request's Accept and Accept-Language headers select among several locations."""

    #: Whether the client wants something other than a page for people.
    conneg: bool = False
    locatts: tuple[Locatt, ...] = ()
    #: Whether User-Agent decided too.
    reads_user_agent: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """The facts about a client, and the random number that decides between equals (0 <= chance < 1)."""

    address: IPv4Address | IPv6Address | None = None
    country: str | None = None
    chance: float = 0.0
    negotiation: Negotiation = field(default_factory=Negotiation)


#: A client without facts, for answers that depend on none.
UNKNOWN_CLIENT = Client()


class Conditions(msgspec.Struct, frozen=True):
    """The conditions of one resolution: who is charged, and which cached records will do."""

    #: Whether cached answers must not be used.
    authoritative: bool = False
    #: Whether a signature must prove the answer. Of the cached answers, only one with a proof is used.
    certified: bool = False
    priority: Priority = Priority.PERSON
    #: The client that upstream queries are charged to.
    client: ClientNetwork = None
    #: Whether the cache alone answers. What bypasses the cache then fails, unless a record in it proves itself.
    only_cached: bool = False
    #: The largest age of a cached record, in seconds. None: its TTL decides alone. See `may_renew`.
    max_age: float | None = None
    #: Called before a fresh record is fetched again because of `max_age`. If it returns False, the record is used.
    may_renew: Callable[[], bool] = lambda: True
    #: Called before a query that bypasses the cache. It may raise TooManyRequests.
    admit_bypass: Callable[[], object] = lambda: None
    #: The longest time past its TTL, in seconds, of a record that is used without a query. None: it never is.
    max_stale: float | None = None
    #: The longest time past its TTL, in seconds, of a record that is used because the upstream failed.
    stale_if_error: float = inf
    #: When the answer is due, in seconds of the event loop's clock. None: it waits as long as its queries do.
    due: float | None = None

    @property
    def are_ordinary(self) -> bool:
        """Whether any answer will do that the resolver gives without a query."""
        return not (self.authoritative or self.certified or self.only_cached or self.stale_if_error is not inf) and (
            self.max_age is None and self.max_stale is None
        )

    def for_others(self) -> Conditions:
        """The conditions for further names that the answer depends on, with the same client and deadline."""
        return Conditions(priority=self.priority, client=self.client, only_cached=self.only_cached, due=self.due)


ORDINARY: Final = Conditions()


def needs_proof(certified: bool, verification: Verification) -> bool:
    """Whether a signature must prove an answer: if the request says so (`certified`), or always."""
    return verification == "always" or (certified and verification != "never")


def proves(entry: Entry | None, now: float, max_age: float | None = None) -> TypeGuard[Entry]:
    """Whether an entry answers `cert`: it is verified, fresh, and at most `max_age` seconds old."""
    if entry is None or not entry.is_proof(now):
        return False
    return max_age is None or now - entry.fetched_at <= max_age


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
LOCAL: Final = Origin.LOCAL
_NOT_FOUND: Final = ResponseCode.HANDLE_NOT_FOUND
#: The origins of answers that the upstream has not confirmed for longer than their TTL.
UNCONFIRMED: Final = frozenset({Origin.STALE, REGISTRY})
#: The origins of answers without a query, which `Resolver.resolve_now` can repeat.
CACHED: Final = (HIT, LOCAL, Origin.STALE, REGISTRY)


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
    #: The answers about the aliases that led to this name, in order.
    aliases: tuple[Resolution, ...] = ()

    @property
    def chain(self) -> tuple[Resolution, ...]:
        """Those of the aliases, and this one."""
        return (*self.aliases, self)

    def after(self, alias: Resolution) -> Resolution:
        """This answer as that of the name for which an alias stands."""
        before = msgspec.structs.replace(alias, aliases=())
        return msgspec.structs.replace(self, aliases=(*alias.aliases, before))

    @property
    def is_registered(self) -> bool:
        """Whether the name is registered. It may still have no public values."""
        return self.entry.answer.code is not _NOT_FOUND

    @property
    def is_verified(self) -> bool:
        """Whether handle servers' signatures prove the answer and its aliases. They prove a record for its TTL only."""
        is_verified = self.entry.answer.is_verified and self.origin not in UNCONFIRMED
        return is_verified and all(alias.is_verified for alias in self.aliases)

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
    return Origin.STALE if entry.agency is None else REGISTRY


def renewal_origin(entry: Entry) -> Origin:
    """The origin of an answer of the upstream in place of an entry past its TTL. A registry record counts as none."""
    return Origin.RENEWED if entry.agency is None else Origin.ASKED


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
    RENEW = "renew"  # it is fresh, and older than the request wants: query the upstream, or answer it
    ANSWER_STALE = "stale"  # it is past its TTL, and the upstream failed a moment ago, or the request accepts it
    FETCH_WITH_FALLBACK = "fallback"  # query the upstream; if it fails or is slow, answer stale
    FETCH = "fetch"


def next_step(entry: Entry | None, now: float, conditions: Conditions, *, has_failed: bool) -> Step:
    """Decide from the cached entry. `now` is in seconds since the epoch; `has_failed`: a query did a moment ago."""
    if entry is None or is_too_stale(entry, now, conditions):
        # As if there were none: an earlier failure may have ended, so a query decides.
        return Step.FETCH
    if entry.is_fresh(now):
        is_young = conditions.max_age is None or now - entry.fetched_at <= conditions.max_age
        return Step.ANSWER if is_young or has_failed else Step.RENEW
    if not entry.is_usable(now):
        return Step.FETCH
    is_accepted = conditions.max_stale is not None and now - entry.fresh_until <= conditions.max_stale
    return Step.ANSWER_STALE if has_failed or is_accepted else Step.FETCH_WITH_FALLBACK


def is_too_stale(entry: Entry, now: float, conditions: Conditions) -> bool:
    """Whether the caller does not accept a stale record, even if the upstream fails."""
    return now - entry.fresh_until > max(conditions.stale_if_error, conditions.max_stale or 0.0)


#: The last part of an entry's lifetime, in which it may be refreshed early.
REFRESH_WINDOW = 0.1


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


def next_alias_target(resolution: Resolution, record: Record, options: ResolveOptions) -> HandleName | None:
    """The name for which the name of an answer stands. None if it is not an alias, or may not be followed.

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
    if len(resolution.aliases) >= MAX_ALIASES or any(name == each.name for each in resolution.chain):
        raise AliasChainTooLong(reached=resolution.name.text)
    return name


def read_agency(services: Sequence[Resolution]) -> str | None:
    """The agency's name in the service handles of a prefix: in 10320/ra_name, else by the known handles."""
    for service in services:
        for value in service.record.of_type("10320/ra_name"):
            if value.text and value.text.strip():
                return value.text.strip()
    return next((KNOWN_SERVICES[key] for service in services if (key := service.name.key) in KNOWN_SERVICES), None)


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
    if resolution.origin is LOCAL:
        return Standing.SET_HERE
    is_missing = resolution.entry.answer.code is ResponseCode.HANDLE_NOT_FOUND
    return Standing.NOT_REGISTERED if is_missing else Standing.REGISTERED


def is_up_to_date(resolution: Resolution) -> bool:
    """Whether an upstream or an operator stands behind the answer now: it is within its TTL, or has none."""
    return resolution.origin not in UNCONFIRMED


def find_currency(entry: Entry, now: float) -> Currency:
    """Whether an entry is fresh, stale or expired."""
    if entry.agency is not None:
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
    return dated_at(entry) if entry.agency is None else None


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


class LocalAnswers(Protocol):
    """The operator's own answers."""

    def resolve(self, name: HandleName, now: float) -> Resolution | None:
        """The answer about a name; None if the cache and the upstream decide. Raises PrefixDenied."""

    def find_place(self, name: HandleName, now: float) -> str | None:
        """File and line of the record that answers or denies a name in place of the cache."""

    def find_near(self, key: str, candidates: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """The candidates that have a record, and the keys next to `key`: before and after it, the nearest first."""


class ResolutionObserver:
    """Counts answers and failures; this one counts nothing. The methods must be quick and must not raise."""

    def record_resolution(self, resolution: Resolution) -> None:
        """Count an answer."""

    def record_origin(self, origin: Origin, is_negative: bool) -> None:
        """Count an answer by its origin, and by whether it is a "not found"."""

    def record_failure(self, token: str) -> None:
        """Count a name without an answer. `token` is the token of the failure's class."""

    def record_malformed_locations(self, values: int) -> None:
        """Count the 10320/loc values of a record that could not be read and were left out."""

    def record_refresh(self) -> None:
        """Count the refresh of a popular record before the end of its TTL."""

    def record_confirmation(self, confirmed: bool) -> None:
        """Count a second query for a known record that the upstream reported as not found. True: it did so again."""
