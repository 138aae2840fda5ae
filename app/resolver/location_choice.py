"""Choosing one of several locations (technical manual, chapter 12; DOI Handbook, section "Resolution").

Each method narrows the candidates; one that would leave none is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Final

from app.handle.location import Location
from app.resolver.asked import Client, Locatt

#: The methods and their order where a record names none (technical manual, version 9).
DEFAULT_METHODS: Final = "locatt,address,country,score,weighted"
#: Methods after this many are not looked at.
_MOST_METHODS: Final = 20

Candidates = Sequence[Location]
_Method = Callable[[Candidates, Client, Sequence[Locatt]], Candidates]


def choose(candidates: Candidates, methods: str | None, client: Client, locatts: Sequence[Locatt]) -> Location | None:
    """The location chosen by `methods`, a comma list; None where there is no candidate.

    Before each method a single candidate is taken, whatever its weight; what is left at the end is weighed.
    """
    left = candidates
    for name in (methods or DEFAULT_METHODS).split(",", _MOST_METHODS):
        if len(left) <= 1:
            break
        method = _METHODS.get(name.strip().lower())
        if method is not None:
            left = method(left, client, locatts) or left
    return _weighted(left, client, locatts)[0] if left else None


def _locatt(candidates: Candidates, client: Client, locatts: Sequence[Locatt]) -> Candidates:
    for name, wanted in locatts:
        candidates = [one for one in candidates if matches(one, name, wanted)] or candidates
    return candidates


def matches(location: Location, name: str, wanted: str | None) -> bool:
    """Whether a location has an attribute of this value; without a value, whether it has the attribute."""
    value = location.get(name)
    if value is None or wanted is None:
        return value is not None
    # The Handbook's own example asks for country:uk and expects country="gb".
    return _country_code(value) == _country_code(wanted) if name == "country" else value == wanted


def _address(candidates: Candidates, client: Client, locatts: Sequence[Locatt]) -> Candidates:
    return [one for one in candidates if _holds(one.get("addresses"), client)]


def _holds(addresses: str | None, client: Client) -> bool:
    # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
    address = getattr(client.address, "ipv4_mapped", None) or client.address
    if addresses is None or address is None:
        return False
    for text in addresses.split(","):
        try:
            network = ip_network(text.strip(), strict=False)
        except ValueError:
            continue
        if network.version == address.version and address in network:
            return True
    return False


def _country(candidates: Candidates, client: Client, locatts: Sequence[Locatt]) -> Candidates:
    mine = _country_code(client.country or "")
    return [one for one in candidates if _country_code(one.get("country") or "") == mine] if mine else candidates


def _country_code(text: str) -> str:
    code = text.strip().lower()
    return "gb" if code == "uk" else code


def _score(candidates: Candidates, client: Client, locatts: Sequence[Locatt]) -> Candidates:
    best = max(one.score for one in candidates)
    return [one for one in candidates if one.score == best]


def _weighted(candidates: Candidates, client: Client, locatts: Sequence[Locatt]) -> Candidates:
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
