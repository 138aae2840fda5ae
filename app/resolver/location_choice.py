"""Choosing one of several locations (technical manual, chapter 12; DOI Handbook, section "Resolution").

Each method narrows the candidates; one that would leave none is passed over. A choice names the facts about the client
that it looked at: whether an answer may be shared by clients depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.handle.location import MAX_NETWORKS, Location
from app.resolver.options import NO_FACTS, Client, ClientFact, Locatt

#: The methods and their order where a record names none (technical manual, version 9).
DEFAULT_METHODS: Final = "locatt,address,country,score,weighted"
#: Methods after this many are not looked at.
_MOST_METHODS: Final = 20

Candidates = Sequence[Location]
_Method = Callable[[Candidates, Client], Candidates]


@dataclass(frozen=True, slots=True)
class LocationChoice:
    """A location, None where there is no candidate, and the facts about the client that could have changed it."""

    location: Location | None
    facts: ClientFact


def choose(candidates: Candidates, methods: str | None, client: Client, locatts: Sequence[Locatt]) -> LocationChoice:
    """Choose a location by `methods`, a comma list; `locatts` are those of the query, before those of the client.

    Before each method a single candidate is taken, whatever its weight; what is left at the end is weighed. A method
    that is named twice counts once.
    """
    left, facts = candidates, NO_FACTS
    names = (name.strip().lower() for name in (methods or DEFAULT_METHODS).split(",", _MOST_METHODS)[:_MOST_METHODS])
    for name in dict.fromkeys(names):
        if len(left) <= 1:
            break
        method = _METHODS.get(name)
        if method is not None:
            if method is _locatt:
                # What the query names is part of the URL; only what the client's headers decide is a fact about it.
                left = _narrow(left, locatts)
            facts |= _facts_used(method, left, client)
            left = method(left, client) or left
    facts |= _facts_used(_weighted, left, client)
    return LocationChoice(_weighted(left, client)[0] if left else None, facts)


def _facts_used(method: _Method, candidates: Candidates, client: Client) -> ClientFact:
    """The facts with another value of which `method` could have left other candidates."""
    if len(candidates) <= 1:
        return NO_FACTS
    if method is _weighted:
        heavy = sum(one.weight > 0 for one in candidates)
        return NO_FACTS if heavy == 1 else ClientFact.CHANCE
    used = NO_FACTS
    for name, fact in _FACTS_OF_ATTRIBUTES.get(method, {}).items():
        if any(one.get(name) is not None for one in candidates):
            used |= fact
    if ClientFact.ACCEPT in used and client.negotiation.reads_user_agent:
        used |= ClientFact.USER_AGENT
    return used


def _narrow(candidates: Candidates, locatts: Sequence[Locatt]) -> Candidates:
    for name, wanted in locatts:
        candidates = [one for one in candidates if matches(one, name, wanted)] or candidates
    return candidates


def _locatt(candidates: Candidates, client: Client) -> Candidates:
    return _narrow(candidates, client.negotiation.locatts)


def matches(location: Location, name: str, wanted: str | None) -> bool:
    """Whether a location has an attribute of this value; without a value, whether it has the attribute."""
    value = location.get(name)
    if value is None or wanted is None:
        return value is not None
    # The Handbook's own example asks for country:uk and expects country="gb".
    return _country_code(value) == _country_code(wanted) if name == "country" else value == wanted


def _address(candidates: Candidates, client: Client) -> Candidates:
    # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
    address = getattr(client.address, "ipv4_mapped", None) or client.address
    found: list[Location] = []
    left = MAX_NETWORKS
    if address is None:
        return found
    for one in candidates:
        left -= one.network_entries
        if any(network.version == address.version and address in network for network in one.networks):
            found.append(one)
        if left <= 0:
            break
    return found


def _country(candidates: Candidates, client: Client) -> Candidates:
    mine = _country_code(client.country or "")
    return [one for one in candidates if _country_code(one.get("country") or "") == mine] if mine else candidates


def _country_code(text: str) -> str:
    code = text.strip().lower()
    return "gb" if code == "uk" else code


def _score(candidates: Candidates, client: Client) -> Candidates:
    best = max(one.score for one in candidates)
    return [one for one in candidates if one.score == best]


def _weighted(candidates: Candidates, client: Client) -> Candidates:
    """One candidate by chance in proportion to the weights; uniformly where all weights are zero."""
    weights = [one.weight for one in candidates]
    total = sum(weights)
    if total <= 0:
        return [candidates[min(int(client.chance * len(candidates)), len(candidates) - 1)]]
    mark = client.chance * total
    for one, weight in zip(candidates, weights, strict=True):
        mark -= weight
        if mark < 0:
            return [one]
    return [next(one for one, weight in reversed(list(zip(candidates, weights, strict=True))) if weight > 0)]


_METHODS: Final[dict[str, _Method]] = {
    "locatt": _locatt,
    "address": _address,
    "country": _country,
    "score": _score,
    "weighted": _weighted,
}
#: The attribute of a location by which a method can tell clients apart, and the fact that it is compared with.
_FACTS_OF_ATTRIBUTES: Final[dict[_Method, dict[str, ClientFact]]] = {
    _locatt: {
        "ctype": ClientFact.ACCEPT,
        "media-type": ClientFact.ACCEPT,
        "http_role": ClientFact.ACCEPT,
        "language": ClientFact.LANGUAGE,
    },
    _address: {"addresses": ClientFact.ADDRESS},
    _country: {"country": ClientFact.COUNTRY},
}
