"""What the simulation needs of a law of popularity besides what the program computes with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import expm1
from typing import Final

from doi_proxy.features.setup.sizing import Popularity

#: Halvings of an interval: more than the digits of a float.
_HALVINGS: Final = 60
#: Exponents of any log lie between these.
_EXPONENTS: Final = (0.0, 2.0)


def group_shares(law: Popularity, count: int) -> list[float]:
    """The shares of the requests of `count` groups of equally many names, the most popular names first."""
    edges = [law.weight_of_first(round(number * law.names / count)) for number in range(count + 1)]
    return [(end - start) / edges[-1] for start, end in pairwise(edges)]


def lru_share(law: Popularity, entries: float) -> float:
    """The share of requests that an LRU cache of `entries` records answers, if records never expire.

    A record stays for about as many requests as it takes to name `entries` others (Che and others, IEEE JSAC 20(7),
    2002).
    """
    if entries >= law.names:
        return 1.0
    stay = _solve(law.distinct, entries, 0.0, law.names / law.bins[-1][1])
    return sum(count * each * -expm1(-stay * each) for count, each in law.bins)


def fit_exponent(names: int, requests: int, distinct: int) -> float:
    """The exponent with which so many requests for `names` names are expected to name `distinct` of them."""
    low, high = _EXPONENTS
    # The larger the exponent, the fewer names are requested.
    return _solve(lambda exponent: -Popularity(names, exponent).distinct(requests), -distinct, low, high)


def _solve(function: Callable[[float], float], value: float, low: float, high: float) -> float:
    """The argument between `low` and `high` for which an increasing function has a value."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return low
