"""What a request wants: its options, the facts about its client, and the conditions of its look-ups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from ipaddress import IPv4Address, IPv6Address
from math import inf
from typing import Final

from doi_proxy.upstream.source import ClientNetwork, Priority

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


@dataclass(frozen=True, slots=True)
class Conditions:
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

    def for_others(self) -> Conditions:
        """The conditions for further names that the answer depends on, with the same client and deadline."""
        return Conditions(priority=self.priority, client=self.client, only_cached=self.only_cached, due=self.due)


ORDINARY: Final = Conditions()
