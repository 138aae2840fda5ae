"""Chooses one of several locations (technical manual, chapter 12; DOI Handbook, section "Resolution").

Each method removes candidates. A method that would remove all of them is skipped. The result lists the facts about the
client that decided, because they tell whether clients can share the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from doi_proxy.resolver.options import NO_FACTS, Client, ClientFact, Locatt
from handle_protocol.location import MAX_NETWORKS, Location

#: The methods of a record that names none, in order (technical manual, version 9).
DEFAULT_METHODS: Final = "locatt,address,country,score,weighted"
#: Limit of the methods in a record. The rest is ignored.
_MAX_METHODS: Final = 20

Candidates = Sequence[Location]
_Method = Callable[[Candidates, Client], Candidates]


@dataclass(frozen=True, slots=True)
class LocationChoice:
    """A location, and the facts about the client that could change it. The location is None without candidates."""

    location: Location | None
    facts: ClientFact


def choose_location(
    candidates: Candidates, methods: str | None, client: Client, locatts: Sequence[Locatt]
) -> LocationChoice:
    """Choose a location by `methods`, a comma-separated list. The `locatts` of the query count before the client's.

    A single remaining candidate is chosen whatever its weight. Several remaining candidates are chosen by weight. A
    method that is listed twice counts once.
    """
    left, facts = candidates, NO_FACTS
    names = (name.strip().lower() for name in (methods or DEFAULT_METHODS).split(",", _MAX_METHODS)[:_MAX_METHODS])
    for name in dict.fromkeys(names):
        if len(left) <= 1:
            break
        method = _METHODS.get(name)
        if method is not None:
            if method is _locatt:
                # The query is part of the URL, so only the choice by the client's headers counts as a fact.
                left = _narrow(left, locatts)
            facts |= _facts_used(method, left, client)
            left = method(left, client) or left
    facts |= _facts_used(_weighted, left, client)
    return LocationChoice(_weighted(left, client)[0] if left else None, facts)


def _facts_used(method: _Method, candidates: Candidates, client: Client) -> ClientFact:
    """The facts about the client that could change the result of `method`."""
    if len(candidates) <= 1:
        return NO_FACTS
    if method is _weighted:
        heavy = sum(location.weight > 0 for location in candidates)
        return NO_FACTS if heavy == 1 else ClientFact.CHANCE
    used = NO_FACTS
    for name, fact in _FACTS_OF_ATTRIBUTES.get(method, {}).items():
        if any(location.get(name) is not None for location in candidates):
            used |= fact
    if ClientFact.ACCEPT in used and client.negotiation.reads_user_agent:
        used |= ClientFact.USER_AGENT
    return used


def _narrow(candidates: Candidates, locatts: Sequence[Locatt]) -> Candidates:
    for name, wanted in locatts:
        candidates = [location for location in candidates if matches(location, name, wanted)] or candidates
    return candidates


def _locatt(candidates: Candidates, client: Client) -> Candidates:
    return _narrow(candidates, client.negotiation.locatts)


def matches(location: Location, name: str, wanted: str | None) -> bool:
    """Whether a location has this attribute and, if `wanted` is given, this value."""
    value = location.get(name)
    if value is None or wanted is None:
        return value is not None
    # The example of the Handbook selects country="gb" with country:uk.
    return _country_code(value) == _country_code(wanted) if name == "country" else value == wanted


def _address(candidates: Candidates, client: Client) -> Candidates:
    # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
    address = getattr(client.address, "ipv4_mapped", None) or client.address
    found: list[Location] = []
    left = MAX_NETWORKS
    if address is None:
        return found
    for location in candidates:
        left -= location.network_entries
        if any(network.version == address.version and address in network for network in location.networks):
            found.append(location)
        if left <= 0:
            break
    return found


def _country(candidates: Candidates, client: Client) -> Candidates:
    mine = _country_code(client.country or "")
    if not mine:
        return candidates
    return [location for location in candidates if _country_code(location.get("country") or "") == mine]


def _country_code(text: str) -> str:
    code = text.strip().lower()
    return "gb" if code == "uk" else code


def _score(candidates: Candidates, client: Client) -> Candidates:
    best = max(location.score for location in candidates)
    return [location for location in candidates if location.score == best]


def _weighted(candidates: Candidates, client: Client) -> Candidates:
    """Choose one candidate at random, in proportion to the weights. If all weights are zero, all are equally likely."""
    weights = [location.weight for location in candidates]
    total = sum(weights)
    if total <= 0:
        return [candidates[min(int(client.chance * len(candidates)), len(candidates) - 1)]]
    mark = client.chance * total
    for location, weight in zip(candidates, weights, strict=True):
        mark -= weight
        if mark < 0:
            return [location]
    return [next(location for location, weight in reversed(list(zip(candidates, weights, strict=True))) if weight > 0)]


_METHODS: Final[dict[str, _Method]] = {
    "locatt": _locatt,
    "address": _address,
    "country": _country,
    "score": _score,
    "weighted": _weighted,
}
#: The attributes of a location that a method compares with facts about the client.
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
