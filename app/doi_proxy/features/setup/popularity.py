"""The popularity of names, and what a store can answer of a load with this popularity: formulas, no simulation.

The law is Zipf-like: the n-th name is requested in proportion to 1/n**exponent. Logs of web proxies follow it with
exponents from 0.64 to 0.83 (Breslau and others, INFOCOM 1999). Requests are independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import expm1, log
from typing import Final

#: Ranks whose weights are added one by one. For the others, an integral replaces the sum: its relative error is below
#: 1e-8.
_EXACT: Final = 1_000
#: Ranks that the formulas treat one by one, and the width of the later bins of ranks.
_SINGLE: Final = 100
_WIDTH: Final = 1.02


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
            end = min(self.names, last + 1 if last < _SINGLE else int(last * _WIDTH))
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
