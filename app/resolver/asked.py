"""What a caller asked about a name, apart from the name itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from ipaddress import IPv4Address, IPv6Address

#: A location attribute that is asked for; without a value, any location that has the attribute.
Locatt = tuple[str, str | None]


class Action(Enum):
    """What to do with the record; anything unknown is a redirect."""

    REDIRECT = "redirect"
    SHOW_VALUES = "showvalues"
    SHOW_URLS = "showurls"
    API = "api"


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a question about a name; without any, "where does this DOI lead?"."""

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

    @property
    def bypasses(self) -> bool:
        """Whether the caller wants what the upstream says now."""
        return self.authoritative or self.certified

    @property
    def filtered(self) -> bool:
        """Whether only some of the values were asked for."""
        return bool(self.types or self.indexes)


#: The plain question.
PLAIN = Asked()


class ClientFact(Flag):
    """What is known of a client and can decide which location it gets; chance is drawn for each request."""

    ADDRESS = auto()
    COUNTRY = auto()
    CHANCE = auto()
    ACCEPT = auto()
    LANGUAGE = auto()
    USER_AGENT = auto()


#: The answer is the same for every client.
NO_FACTS = ClientFact(0)


@dataclass(frozen=True, slots=True)
class Negotiation:
    """What a request's Accept and Accept-Language headers ask of a record with several locations."""

    #: Whether something other than a page for people is wanted.
    conneg: bool = False
    locatts: tuple[Locatt, ...] = ()
    #: Whether User-Agent was read besides Accept.
    reads_user_agent: bool = False


@dataclass(frozen=True, slots=True)
class Client:
    """What is known of whoever asks, and the chance that decides between equals (0 <= chance < 1)."""

    address: IPv4Address | IPv6Address | None = None
    country: str | None = None
    chance: float = 0.0
    negotiation: Negotiation = field(default_factory=Negotiation)


#: Whoever asks where nothing depends on it.
NOBODY = Client()
