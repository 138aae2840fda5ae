"""The published load of the DOI system, simulated: hit shares by cache size, and the machines that it takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from typing import Final

from bench.findings import Claim, Section, Table
from bench.names import HOT
from bench.plan import Plan
from bench.popularity import Popularity, fit_exponent, group_shares, lru_share
from bench.records import entry_of, values_of
from bench.scale_check import Compared, Costs, compare, measure_costs
from bench.simulation import MAX_REMEMBERED, Shares, SimulatedProxy, Sizes, simulate
from doi_names.name import fold
from doi_proxy.assembly.settings import Settings
from handle_protocol.referral import Answer, ResponseCode

_DAY: Final = 86_400.0
_GIB: Final = 2**30
#: Registered names in 2025: docs/scale.md.
REGISTERED: Final = 391_000_000
#: Crossref: 2 to 4 % of all resolutions fail. Each of them needs an upstream query.
NOT_FOUND: Final = 0.03
#: The peak is three times the mean, as if all requests of a day came within eight hours.
PEAK: Final = 3.0
#: A processor is half busy at the peak.
BUSY: Final = 0.5
#: Bytes of an answer with three values in a SQLite store of a million: `make bench ARGS=large`, docs/scale.md. Small
#: stores have more, because the file grows in steps.
RECORD_BYTES: Final = 200.0
#: Crossref: 1.1 billion resolutions a month, which is 95 % of all. A month has 30.4 days.
RESOLUTIONS_A_SECOND: Final = 1.1e9 / 0.95 / (30.4 * _DAY)
#: The DOI Foundation's status page, 2025-10-12: "spikes were large (100x normal traffic)".
SPIKE: Final = 100.0
_CORES_A_HOST: Final = 2
LOADS: Final = (0.01, 0.1, 1.0)
#: Requests and distinct names of a public log of downloads by DOI, September 2015 to February 2016 (Elbakyan and
#: Bohannon, https://doi.org/10.5061/dryad.q447c), and the names that Crossref had then.
LOGGED: Final = (
    ("November 2015 (13 days)", 1_849_385, 1_342_836),
    ("September 2015", 4_904_318, 3_067_114),
    ("February 2016", 6_213_091, 3_740_944),
    ("all six months", 27_819_966, 10_648_365),
)
LOGGED_NAMES: Final = 81_600_000

_MEMORY: Final = (_GIB // 4, _GIB, 4 * _GIB, 16 * _GIB)
_STORED: Final = (1_000_000, 10_000_000, REGISTERED)
_LIFETIMES: Final = (_DAY, 7 * _DAY, 30 * _DAY)
#: The warm-up lasts so many lifetimes of a record, and at least as many requests as are counted.
_WARM_UP: Final = 2.0
_EXPONENTS: Final = (0.7, 0.85, 1.0)
_SEED: Final = 13
#: The largest difference between a simulated share and a measured or computed one.
_TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Effort:
    """Requests counted in each simulation, requests of each check, names whose answers are timed."""

    simulated: int
    checked: int
    timed: int


_FULL: Final = Effort(simulated=50_000, checked=8_000, timed=3_000)


@dataclass(frozen=True, slots=True)
class Need:
    """What a load takes. Rates are a second, sizes are in bytes."""

    mean: float
    peak: float
    cores: float
    hosts: int
    memory: float
    records_a_day: float
    records: float
    store: float
    queries: float
    peak_queries: float
    spike: float
    spike_cores: float
    spike_queries: float


def default(name: str) -> float:
    """The default of a setting."""
    return float(Settings.model_fields[name].default)


def usual_sizes() -> Sizes:
    """The tiers that the default settings give, with a store of every name. The TTL of records is a day."""
    lifetime = min(_DAY, default("cache_ttl_ceiling"))
    return Sizes(int(default("cache_memory_bytes")), REGISTERED, lifetime, default("cache_grace"))


class World:
    """All registered names, each of `names` standing for a group of them with about the same popularity.

    Load, memory and store are divided by the size of a group, and time is not. So each name is requested as often as
    one name of its group, and a tier holds as many groups as it would hold.
    """

    def __init__(self, names: Sequence[str], popularity: Popularity) -> None:
        self._keys = [fold(name) for name in names]
        random.Random(_SEED).shuffle(self._keys)
        self._weights = list(accumulate(group_shares(popularity, len(names))))
        self._group = popularity.names / len(names)
        self._answer = Answer(ResponseCode.SUCCESS, values_of(HOT))

    def simulate(self, sizes: Sizes, load: float, count: int) -> Shares:
        """The answers to `count` requests of a share of the published load, after a warm-up."""
        rate = RESOLUTIONS_A_SECOND * load / self._group
        before = max(count, ceil(_WARM_UP * sizes.lifetime * rate))
        drawn = random.Random(_SEED).choices(self._keys, cum_weights=self._weights, k=before + count)
        arrivals = [(key, number / rate) for number, key in enumerate(drawn)]
        proxy = SimulatedProxy(self._divide(sizes), self._answer)
        simulate(proxy, arrivals[:before])
        return simulate(proxy, arrivals[before:])

    def _divide(self, sizes: Sizes) -> Sizes:
        return replace(
            sizes,
            memory_bytes=int(sizes.memory_bytes / self._group),
            store_entries=round(sizes.store_entries / self._group),
            remembered=max(1, round(MAX_REMEMBERED / self._group)),
        )


def scale(plan: Plan, effort: Effort = _FULL) -> tuple[Section, ...]:
    """The simulation of the DOI system, its check against a running proxy, and what three loads take."""
    popularity = Popularity(REGISTERED, plan.zipf_exponent)
    world = World(plan.names, popularity)
    results: dict[tuple[Sizes, float], Shares] = {}

    def shares(sizes: Sizes, load: float) -> Shares:
        if (sizes, load) not in results:
            results[sizes, load] = world.simulate(sizes, load, effort.simulated)
        return results[sizes, load]

    costs = measure_costs(plan, effort.timed)
    compared = compare(plan, effort.checked)
    usual = usual_sizes()
    needs = [need(load, shares(usual, load), costs, popularity) for load in LOADS]
    tables = (
        _needs_table(needs),
        _memory_table(shares, usual, popularity),
        _store_table(shares, usual, popularity),
        _lifetime_table(shares, usual),
        _exponent_table(),
        _logs_table(),
        _costs_table(costs),
        _compared_table(compared),
    )
    computed = popularity.ttl_share(RESOLUTIONS_A_SECOND * usual.lifetime)
    difference = abs(shares(usual, 1.0).from_cache - computed)
    return (Section("Scale", _method(plan), tables, (*_claims(compared), _claim("formula, 100 %", difference))),)


def need(load: float, shares: Shares, costs: Costs, popularity: Popularity) -> Need:
    """What a share of the published load takes. The names that do not exist are added to the simulated ones."""
    mean, peak = RESOLUTIONS_A_SECOND * load, RESOLUTIONS_A_SECOND * load * PEAK
    from_upstream = (1 - NOT_FOUND) * shares.queries + NOT_FOUND
    from_memory = (1 - NOT_FOUND) * shares.from_memory
    from_store = (1 - NOT_FOUND) * (shares.from_cache - shares.from_memory)
    cost = from_memory * costs.memory + from_store * costs.store + from_upstream * costs.upstream
    cores = peak * cost / BUSY
    process = costs.resident + default("cache_memory_bytes") + default("express_memory_bytes")
    records = popularity.distinct(mean * (default("cache_ttl_ceiling") + default("cache_grace")))
    return Need(
        mean=mean,
        peak=peak,
        cores=cores,
        hosts=ceil(cores / _CORES_A_HOST) + 1,
        memory=process * min(_CORES_A_HOST, ceil(cores)),
        records_a_day=popularity.distinct(mean * _DAY),
        records=records,
        store=records * RECORD_BYTES,
        queries=mean * from_upstream,
        peak_queries=peak * from_upstream,
        spike=mean * SPIKE,
        spike_cores=mean * SPIKE * cost,
        spike_queries=mean * SPIKE * from_upstream,
    )


# --- The tables -------------------------------------------------------------------------------------------------------

Simulated = Callable[[Sizes, float], Shares]


def _needs_table(needs: Sequence[Need]) -> Table:
    rows: tuple[tuple[str, Callable[[Need], str]], ...] = (
        ("resolutions a second, mean", lambda one: f"{one.mean:,.1f}"),
        ("resolutions a second, peak", lambda one: f"{one.peak:,.0f}"),
        ("cores at the peak, half busy", lambda one: f"{one.cores:.2f}"),
        (f"hosts of {_CORES_A_HOST} cores, one of them in reserve", lambda one: f"{one.hosts}"),
        ("memory of a host's processes", lambda one: f"{one.memory / _GIB:.1f} GiB"),
        ("records requested in a day", lambda one: _millions(one.records_a_day)),
        ("records in the store after its 31 days", lambda one: _millions(one.records)),
        ("the store after its 31 days", lambda one: f"{one.store / _GIB:,.1f} GiB"),
        ("upstream queries a second, mean", lambda one: f"{one.queries:,.1f}"),
        ("upstream queries a second, peak", lambda one: f"{one.peak_queries:,.0f}"),
        ("resolutions a second, spike", lambda one: f"{one.spike:,.0f}"),
        ("cores in the spike, all busy", lambda one: f"{one.spike_cores:.1f}"),
        ("upstream queries a second, spike", lambda one: f"{one.spike_queries:,.0f}"),
    )
    return Table(
        _columns("What it takes"),
        tuple((label, *(write(one) for one in needs)) for label, write in rows),
        f"The defaults, with TTLs of a day. The budget of upstream queries is {default('upstream_rate'):g} a second.",
    )


def _memory_table(shares: Simulated, usual: Sizes, popularity: Popularity) -> Table:
    each = entry_of(HOT, 0.0).size
    rows = []
    for size in _MEMORY:
        found = _percents(shares(replace(usual, memory_bytes=size), load).from_memory for load in LOADS)
        rows.append((f"{size / _GIB:g} GiB", *found, f"{lru_share(popularity, size / each):.1%}"))
    return Table((*_columns("Answered from memory, by its size"), "in memory, by formula"), tuple(rows))


def _store_table(shares: Simulated, usual: Sizes, popularity: Popularity) -> Table:
    rows = []
    for count in _STORED:
        found = _percents(shares(replace(usual, store_entries=count), load).from_cache for load in LOADS)
        rows.append((f"{_millions(count)} records" if count < REGISTERED else "all records", *found))
    formula = (popularity.ttl_share(RESOLUTIONS_A_SECOND * load * usual.lifetime) for load in LOADS)
    rows.append(("all records, by formula", *_percents(formula)))
    return Table(_columns("Answered without a query, by the size of the store"), tuple(rows))


def _lifetime_table(shares: Simulated, usual: Sizes) -> Table:
    rows = []
    for lifetime in _LIFETIMES:
        found = [(load, shares(replace(usual, lifetime=lifetime), load)) for load in LOADS]
        rates = (f"{RESOLUTIONS_A_SECOND * load * one.queries:,.1f} ({one.from_cache:.0%})" for load, one in found)
        rows.append((f"{lifetime / _DAY:g} d", *rates))
    return Table(_columns("Upstream queries a second (hit share), by the TTL of records"), tuple(rows))


def _exponent_table() -> Table:
    rows = []
    for exponent in _EXPONENTS:
        law = Popularity(REGISTERED, exponent)
        found = (law.ttl_share(RESOLUTIONS_A_SECOND * load * _DAY) for load in LOADS)
        rows.append((f"{exponent:g}", *_percents(found)))
    return Table(_columns("Answered without a query, by the exponent (formula)"), tuple(rows))


def _logs_table() -> Table:
    rows = tuple(
        (label, f"{requests:,}", f"{names:,}", f"{fit_exponent(LOGGED_NAMES, requests, names):.2f}")
        for label, requests, names in LOGGED
    )
    return Table(("Log of downloads", "requests", "names", "exponent"), rows)


def _costs_table(costs: Costs) -> Table:
    rows = (
        ("answer from memory", f"{costs.memory * 1e6:,.0f} µs"),
        ("answer from the store", f"{costs.store * 1e6:,.0f} µs"),
        ("answer from the upstream", f"{costs.upstream * 1e6:,.0f} µs"),
        ("resident memory of a process at start", f"{costs.resident / 2**20:,.0f} MiB"),
    )
    return Table(("Processor time and memory", "measured"), rows)


def _compared_table(compared: Sequence[Compared]) -> Table:
    rows = tuple(
        (
            one.label,
            f"{one.requests:,}",
            f"{one.program_share:.2%}",
            f"{one.simulated.from_cache:.2%}",
            f"{one.program_queries:,}",
            f"{one.simulated.upstream + one.simulated.refreshes:,}",
        )
        for one in compared
    )
    columns = ("Check", "requests", "hits, program", "hits, simulated", "queries, program", "queries, simulated")
    return Table(columns, rows)


def _claims(compared: Sequence[Compared]) -> list[Claim]:
    return [_claim(one.label, abs(one.program_share - one.simulated.from_cache)) for one in compared]


def _claim(what: str, difference: float) -> Claim:
    return Claim(f"hit share, difference to the simulation: {what}", difference, "<=", _TOLERANCE)


def _columns(first: str) -> tuple[str, ...]:
    return (first, *(f"{load:.0%} of the load" for load in LOADS))


def _percents(values: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{value:.1%}" for value in values)


def _millions(count: float) -> str:
    return f"{count / 1e6:,.2g} M" if count < 1e7 else f"{count / 1e6:,.0f} M"


def _method(plan: Plan) -> str:
    return (
        f"{RESOLUTIONS_A_SECOND:,.0f} resolutions a second of {REGISTERED / 1e6:,.0f} million names, Zipf-distributed "
        f"with the exponent {plan.zipf_exponent:g}. Each of {len(plan.names):,} names ({plan.names_from}) stands for a "
        "group of names of about the same popularity. docs/scale.md has the sources and the limits. The check sends "
        "the same requests to a proxy with small tiers and to the simulation, one after the other. The processor time "
        "of an answer includes that of the kernel for the proxy."
    )
