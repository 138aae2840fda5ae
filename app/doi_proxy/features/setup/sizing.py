"""What a load takes: upstream queries, places, processors and room in the store. Formulas over measured costs.

docs/scale.md has the sources, and a table that `write_rows` fills. `doi-proxy check --size` prints one column of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final, NamedTuple

from doi_proxy.features.setup.popularity import Popularity
from doi_proxy.server.connections import IDLE_TIMEOUT

_DAY: Final = 86_400.0
#: Registered names in 2025, and the exponent of their popularity in a public log: docs/scale.md.
REGISTERED: Final = 391_000_000
EXPONENT: Final = 0.85
#: Crossref: 2 to 4 % of all resolutions fail. Each of them needs an upstream query.
NOT_FOUND: Final = 0.03
#: The peak is three times the mean, as if all requests of a day came within eight hours.
PEAK: Final = 3.0
#: A processor is half busy at the peak.
BUSY: Final = 0.5
#: Bytes of an answer with three values in a SQLite store of a million: `make bench ARGS=large`, docs/scale.md. Small
#: stores have more, because the file grows in steps.
RECORD_BYTES: Final = 200.0
#: Seconds of processor time of an answer from the store and of one from the upstream: RESULTS.md, part "Scale". An
#: answer from memory takes less, so what follows is an upper limit.
STORE_SECONDS: Final = 107e-6
UPSTREAM_SECONDS: Final = 540e-6
#: The same of a connection with TLS that is opened for one request: docs/performance.md.
TLS_SECONDS: Final = 600e-6
#: Requests a second of one machine above which HTTP caches in front cost less than more machines.
_ONE_MACHINE: Final = 4_000.0
#: Queries a second above which a guest of the public resolver should not request a higher rate.
_GUEST: Final = 100.0

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([kMG]?)/(s|day)")
_FACTORS: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


class Limit(StrEnum):
    """What a load meets first: a setting, or the processors."""

    NOTHING = "nothing"
    TOKENS = "upstream_rate"
    PLACES = "upstream_max_concurrency"
    PROCESSORS = "processors"


class Load(NamedTuple):
    """Requests a second: the mean of a day, and its peak."""

    mean: float
    peak: float


class Has(NamedTuple):
    """What a service has: tokens a second, places for queries, and processors that answer."""

    rate: float
    places: int
    processors: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a load takes. Rates are a second, `answer` is in seconds, sizes are in bytes."""

    load: Load
    answer: float
    stored_share: float
    queries: float
    peak_queries: float
    places: int
    connections: int
    processors: float
    processors_with_tls: float
    records: float
    store_bytes: float

    def first_limit(self, has: Has) -> Limit:
        """The limit that the peak exceeds the most."""
        used = {
            Limit.TOKENS: self.peak_queries / has.rate,
            Limit.PLACES: self.places / has.places,
            Limit.PROCESSORS: self.processors_with_tls / has.processors,
        }
        most = max(used, key=lambda limit: used[limit])
        return most if used[most] > 1 else Limit.NOTHING

    def advice(self, has: Has) -> list[str]:
        """What to run for this load, one sentence for each limit that is exceeded."""
        found = []
        if self.peak_queries > _GUEST:
            found.append("a registry file at each site: names in it need no query")
        elif self.peak_queries > has.rate:
            found.append(f"upstream_rate = {ceil(self.peak_queries)}, agreed with the DOI Foundation, or longer TTLs")
        if self.places > has.places and self.peak_queries <= _GUEST:
            found.append(f"upstream_max_concurrency = {self.places}")
        if self.load.peak > _ONE_MACHINE:
            found.append("HTTP caches in front, and machines that share a Valkey with Sentinel")
        elif self.processors_with_tls > has.processors:
            found.append(f"instances = {ceil(self.processors_with_tls)}, and TLS that ends in the front proxy")
        return found or ["the default settings"]


def read_load(text: str) -> Load:
    """The load of `10M/day` (the mean) or of `44k/s` (the peak). Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    count = float(found[1]) * _FACTORS[found[2]] if found else 0.0
    if found is None or not 0 < count <= 1e12:
        raise ValueError(
            f"{text[:40]!r} is not a load; write a number, with k, M or G after it, and /day for the mean or /s for "
            "the peak, such as 10M/day or 44k/s"
        )
    mean = count / _DAY if found[3] == "day" else count / PEAK
    return Load(mean, mean * PEAK)


def need_of(load: Load, answer: float, lifetime: float = _DAY, grace: float = 30 * _DAY) -> Need:
    """What a load takes if the upstream answers in `answer` seconds.

    Records are fresh for `lifetime` seconds, and kept for `grace` seconds more.
    """
    law = Popularity(REGISTERED, EXPONENT)
    stored = (1 - NOT_FOUND) * law.ttl_share(load.mean * lifetime)
    seconds = stored * STORE_SECONDS + (1 - stored) * UPSTREAM_SECONDS
    records = law.distinct(load.mean * (lifetime + grace))
    return Need(
        load=load,
        answer=answer,
        stored_share=stored,
        queries=load.mean * (1 - stored),
        peak_queries=load.peak * (1 - stored),
        places=ceil(load.peak * (1 - stored) * answer),
        connections=ceil(load.peak * IDLE_TIMEOUT),
        processors=load.peak * seconds / BUSY,
        processors_with_tls=load.peak * (seconds + TLS_SECONDS) / BUSY,
        records=records,
        store_bytes=records * RECORD_BYTES,
    )


def write_rows(needs: Sequence[Need], has: Has) -> list[tuple[str, ...]]:
    """A row for each quantity: its label, and its value for each load."""
    labels: tuple[tuple[str, Callable[[Need], str]], ...] = (
        ("requests a second, mean; peak", lambda one: f"{_number(one.load.mean)}; {_number(one.load.peak)}"),
        ("answered without a query", lambda one: f"{one.stored_share:.0%}"),
        ("upstream queries a second, mean; peak", lambda one: f"{_number(one.queries)}; {_number(one.peak_queries)}"),
        ("places for queries", lambda one: f"{one.places:,}"),
        (f"connections, each open for {IDLE_TIMEOUT:g} s", lambda one: f"{one.connections:,}"),
        ("processors, half busy at the peak", lambda one: _number(one.processors)),
        ("the same, with a TLS connection a request", lambda one: _number(one.processors_with_tls)),
        ("records after 31 days", lambda one: f"{_number(one.records / 1e6)} M"),
        ("the store after 31 days", lambda one: f"{_number(one.store_bytes / 2**30)} GiB"),
        ("what breaks first", lambda one: str(one.first_limit(has))),
    )
    return [(label, *(write(one) for one in needs)) for label, write in labels]


def _number(value: float) -> str:
    """Two digits of a small number, all digits before the point of a large one."""
    if value < 0.01:
        return "under 0.01"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
