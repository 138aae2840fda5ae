"""A law of popularity, and what the simulation computes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import expm1, log
from typing import Final

#: Halvings of an interval: more than the digits of a float.
_HALVINGS: Final = 60
#: Exponents of any log lie between these.
_EXPONENTS: Final = (0.0, 2.0)

#: Ranks whose weights are added one by one. For the others, an integral replaces the sum: its relative error is below
#: 1e-8.
_EXACT: Final = 1_000


@dataclass(frozen=True)
class Popularity:
    """`names` names. The n-th is requested in proportion to 1/n**exponent."""

    names: int
    exponent: float

    def distinct(self, requests: float) -> float:
        """The number of names that so many requests are expected to name."""
        return sum(count * -expm1(-requests * each) for count, each in self.bins)

    def ttl_share(self, requests: float) -> float:
        """The share of requests that a store of any size answers if a record is fresh for so many requests.

        A record is fetched by one request, and answers those that follow while it is fresh (Jung and others, INFOCOM
        2003).
        """
        return sum(count * each * (rate / (1 + rate)) for count, each in self.bins if (rate := requests * each))

    def weight_of_first(self, rank: int) -> float:
        """The sum of the weights of the first `rank` names."""
        if rank < len(self._head):
            return self._head[rank]
        start, end, power = _EXACT + 0.5, rank + 0.5, 1 - self.exponent
        # The midpoint rule. For an exponent of 1, the integral is a logarithm.
        return self._head[-1] + (log(end / start) if power == 0 else (end**power - start**power) / power)

    @cached_property
    def bins(self) -> list[tuple[int, float]]:
        """Bins of names with about the same popularity: the number of names, and the probability of each."""
        bins, last, total = [], 0, self.weight_of_first(self.names)
        while last < self.names:
            # Ranks that the formulas treat one by one, and the width of the later bins of ranks.
            end = min(self.names, last + 1 if last < 100 else int(last * 1.02))
            weight = self.weight_of_first(end) - self.weight_of_first(last)
            bins.append((end - last, weight / total / (end - last)))
            last = end
        return bins

    @cached_property
    def _head(self) -> list[float]:
        sums = [0.0]
        for rank in range(1, min(self.names, _EXACT) + 1):
            sums.append(sums[-1] + rank**-self.exponent)
        return sums


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
