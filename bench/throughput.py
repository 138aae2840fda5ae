"""Answers a second in a closed loop, all contestants in turn, and latency in an open loop at half of that rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from bench import contestants
from bench.contestants import BARE_ASGI, EXPRESS_OFF, EXPRESS_ON, NGINX_CACHE, Contestant, Site
from bench.findings import Section, Table
from bench.loads import (
    CONNECTIONS,
    OPEN_CONNECTIONS,
    OPEN_SECONDS,
    Latency,
    Throughput,
    closed_loop,
    each_once,
    open_loop,
)
from bench.names import HOT, MAX_NAMES, path_of
from bench.plan import Plan, store_of
from bench.requests import Load, Names, names_of, write_list
from bench.rounds import Series, interleaved, ratio
from bench.servers import Server, python, served
from bench.tools import NotMeasured

_WARM_UP: Final = 1.0
_HALF: Final = 0.5


REDIRECT: Final = Load("One hot DOI, redirect")
REST: Final = Load("One hot DOI, REST JSON", "/api/handles" + path_of(HOT), status=200)
NAMES: Final = Load("Many DOIs, Zipf-distributed, redirect", names=Names(MAX_NAMES))
MIXED: Final = Load("90 % known and 10 % new DOIs, redirect", names=Names(MAX_NAMES, one_new_in=10, warm=False))
LOADS: Final = (REDIRECT, REST, NAMES, MIXED)

Rates = dict[Load, dict[Contestant, Series]]


@dataclass(slots=True)
class Field:
    """The running contestants, and the failures."""

    plan: Plan
    running: dict[Contestant, Server]
    not_measured: list[str]
    failed: dict[tuple[Load, Contestant], int] = field(default_factory=dict)
    #: Processor seconds of an answer, one value per run.
    cpu: dict[tuple[Load, Contestant], list[float]] = field(default_factory=dict)
    _asked: int = 0
    _lists: dict[Load, tuple[str, ...]] = field(default_factory=dict)

    def takers(self, load: Load) -> list[Contestant]:
        """The contestants that can take part in a load."""
        return [one for one in self.running if one.resolves or load.is_hot]

    def run(self, load: Load, one: Contestant, seconds: float) -> float:
        """Answers a second."""
        self._asked += 1
        server = self.running[one]
        before = server.cpu()
        plan = replace(self.plan, seconds=seconds)
        if load not in self._lists:
            self._lists[load] = write_list(load, plan.names, plan.folder)
        done = send(plan, server, load, self._lists[load], f"r{self._asked}")
        self.cpu.setdefault((load, one), []).append((server.cpu() - before) / max(done.requests, 1))
        self.failed[load, one] = self.failed.get((load, one), 0) + done.failed
        return done.rate

    def warm_up(self, load: Load, one: Contestant) -> None:
        """Request each known name once from every contestant, which fills its cache."""
        warm(self.plan, self.running[one], load)
        self.run(load, one, _WARM_UP)


def send(plan: Plan, server: Server, load: Load, listed: Sequence[str], tag: str) -> Throughput:
    """Send a load in a closed loop. `listed` is its list of requests; new names begin with the tag."""
    url = server.url if listed else server.url + load.path
    return closed_loop(url, plan.seconds, plan.cores.load, (*listed, tag) if listed else (), load.headers)


def warm(plan: Plan, server: Server, load: Load) -> None:
    """Request each name of a list once, which fills the cache."""
    if load.names is not None and load.names.warm:
        paths = [path_of(name) for name in names_of(load.names, plan.names)]
        each_once(server.url, paths, plan.cores.load)


@contextmanager
def on_the_field(plan: Plan, chosen: Sequence[Contestant]) -> Iterator[Field]:
    """Start the stand-in and the contestants. `not_measured` names those that could not start."""
    store = store_of(plan.folder / "names.sqlite3", plan.names)
    with ExitStack() as stack:
        stand_in = stack.enter_context(
            served(lambda port: python("-m", "bench.stand_in", "--port", str(port)), cores=plan.cores.load)
        )
        site = Site(plan.folder, plan.cores, stand_in.url, store)
        started = Field(plan, {}, [])
        for one in chosen:
            try:
                started.running[one] = stack.enter_context(one.start(site))
            except NotMeasured as reason:
                started.not_measured.append(f"{one.name}: {reason}")
        yield started


def measure_rates(on: Field) -> Rates:
    """Measure every load in interleaved rounds."""
    rates: Rates = {}
    for load in LOADS:
        takers = on.takers(load)
        for one in takers:
            on.warm_up(load, one)
        rates[load] = interleaved(
            takers,
            on.plan.rounds,
            lambda one, load=load: on.run(load, one, on.plan.seconds),  # type: ignore[misc]
        )
    return rates


def throughput(plan: Plan) -> tuple[Section, ...]:
    """The throughput of all contestants, and the latency of the important ones at half their own peak."""
    with on_the_field(plan, contestants.ALL) as on:
        rates = measure_rates(on)
        peaks = {one: series.median for one, series in rates[REDIRECT].items()}
        return (_throughput_section(on, rates), _latency_section(on, peaks))


def latency(plan: Plan) -> tuple[Section, ...]:
    """Latency alone, after a short measurement of the peaks."""
    with on_the_field(plan, _PATIENT) as on:
        for one in on.running:
            on.warm_up(REDIRECT, one)
        peaks = {one: on.run(REDIRECT, one, plan.seconds) for one in on.running}
        return (_latency_section(on, peaks),)


def _throughput_section(on: Field, rates: Rates) -> Section:
    tables = (*(_table(on, load, series) for load, series in rates.items()), _among_ourselves(rates))
    return Section(
        title="Throughput",
        method=(
            f"wrk, {CONNECTIONS} connections, one thread, {on.plan.seconds:g} s for each of {on.plan.rounds} rounds; "
            f"the median, with the lowest and highest in brackets. Ratios are taken round by round. CPU is "
            f"the processor time of the server; a busy machine affects it less than the rate. The many DOIs are "
            f"{len(on.plan.names):,} ({on.plan.names_from}); each was requested once before the first round."
        ),
        tables=tables,
        not_measured=tuple(on.not_measured),
    )


def _table(on: Field, load: Load, series: Mapping[Contestant, Series]) -> Table:
    rows = []
    for one, found in series.items():
        bare = ratio(series, one, BARE_ASGI)
        cached = ratio(series, one, NGINX_CACHE)
        cpu = f"{median(on.cpu[load, one][-len(found.values) :]) * 1e6:.1f} µs"
        rows.append((one.name, rate(found), times(bare), times(cached), cpu, f"{on.failed[load, one]:,}"))
    columns = (load.title, "answers/s", "/ bare ASGI", "/ nginx proxy_cache", "CPU per answer", "failed")
    return Table(columns, tuple(rows))


def _among_ourselves(rates: Rates) -> Table:
    pairs = (("express lane / full path", EXPRESS_ON, EXPRESS_OFF),)
    rows = [(what, *(times(ratio(rates[load], of, to)) for load in LOADS)) for what, of, to in pairs]
    return Table(("Ratio", "redirect", "REST", "many DOIs", "new DOIs"), tuple(rows))


def rate(series: Series) -> str:
    """A rate with its spread."""
    return f"{series.median:,.0f} ({series.low:,.0f} to {series.high:,.0f})"


def times(series: Series | None) -> str:
    """A ratio with its spread, or a dash."""
    return "–" if series is None else f"{series.median:.2f} ({series.low:.2f} to {series.high:.2f})"


#: The contestants whose latency is measured.
_PATIENT: Final = (EXPRESS_ON, EXPRESS_OFF, BARE_ASGI, NGINX_CACHE)


def _latency_section(on: Field, peaks: Mapping[Contestant, float]) -> Section:
    rows = []
    notes: list[str] = []
    for one in (one for one in _PATIENT if one in on.running):
        wanted = peaks[one] * _HALF
        try:
            got = open_loop(
                on.running[one].url + REDIRECT.path, wanted, max(on.plan.seconds, OPEN_SECONDS), on.plan.cores.load
            )
        except NotMeasured as reason:
            notes.append(f"{one.name}: {reason}")
            continue
        rows.append((one.name, f"{wanted:,.0f}", *_latency_cells(got)))
    columns = ("Hot DOI, redirect", "sent/s", "answered/s", "p50", "p99", "p99.9", "failed")
    return Section(
        title="Latency at half the peak",
        method=(
            f"h2load over HTTP/1.1 at a fixed rate (open loop), {OPEN_CONNECTIONS} connections. The rate is half of "
            "what each contestant reached in its closed loop. Times run from the request to the end of its answer; a "
            "question that waits in the generator because its connection is still busy is timed from when it is sent."
        ),
        tables=(Table(columns, tuple(rows)),) if rows else (),
        not_measured=tuple(dict.fromkeys(notes)),
    )


def _latency_cells(got: Latency) -> tuple[str, ...]:
    shown = (f"{seconds * 1000:.2f} ms" for seconds in (got.p50, got.p99, got.p999))
    return (f"{got.rate:,.0f}", *shown, f"{got.failed:,}")
