"""Real service: each row of `rows` beside its reference, in a closed loop, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from itertools import chain
from statistics import median
from typing import Final

from bench.contestants import Contestant, Site
from bench.findings import Claim, Section, Table
from bench.loads import CONNECTIONS
from bench.names import HOT
from bench.plan import Plan, build_store
from bench.records import LONG_TTL, entry_of
from bench.requests import Load, write_list
from bench.rounds import Series, interleaved
from bench.rows import MISSING, ROWS, Row
from bench.servers import HOST, PATIENCE, Server, python, served
from bench.throughput import rate, send, times, warm
from bench.tools import NotMeasured
from doi_proxy.cache.entry import Entry
from handle_protocol.referral import Answer, ResponseCode

#: Seconds of warm-up: of a hot name, and of a list of names that are not requested once before.
_WARM_UP: Final = 1.0
_LONG_WARM_UP: Final = 10.0


@dataclass(slots=True)
class Measured:
    """The rates of a row, of its reference, and the processor time of an answer of each, in seconds."""

    rates: dict[Contestant, Series]
    cpu: dict[Contestant, list[float]] = field(default_factory=dict)
    failed: int = 0


def service(plan: Plan) -> tuple[Section, ...]:
    """Measure the chosen rows. One that cannot be measured does not stop the others."""
    chosen = [row for row in ROWS if not plan.rows or row.key in plan.rows]
    rows: list[tuple[str, ...]] = []
    claims: list[Claim] = []
    notes: list[str] = []
    with site_of(plan) as site, ExitStack() as stack:
        references: dict[Contestant, Server] = {}
        for row in chosen:
            try:
                if row.against is not None and row.against not in references:
                    references[row.against] = stack.enter_context(row.against.start(site))
                measured = _measure(plan, site, row, references)
            except NotMeasured as reason:
                notes.append(f"{row.what}: {reason}")
                continue
            rows.append(_cells(row, measured))
            claims.append(_claim(row, measured))
    columns = ("Row", "answers/s", "reference", "rate / reference", "CPU per answer", "CPU, reference", "failed")
    method = (
        f"wrk, {CONNECTIONS} connections, {plan.seconds:g} s for each of {plan.rounds} rounds, the row and its "
        "reference in turn with the same requests; medians, with the lowest and highest in brackets. A goal is the "
        "processor time of an answer of the reference, divided by that of an answer of the row. On a core of its own "
        "this is the ratio of the rates; on a busy machine it is more exact. Where there is no reference, the goal is "
        "the processor time itself."
    )
    return (Section("Real service", method, (Table(columns, tuple(rows)),), tuple(claims), not_measured=tuple(notes)),)


@contextmanager
def site_of(plan: Plan) -> Iterator[Site]:
    """The stand-in for the upstream, and a store with all names and one that does not exist."""
    now = time.time()
    known = (entry_of(name, now) for name in (HOT, *plan.names))
    missing = Entry(MISSING.upper(), Answer(ResponseCode.HANDLE_NOT_FOUND), now, now + LONG_TTL, now + 2 * LONG_TTL)
    store = build_store(plan.folder / "service.sqlite3", chain(known, [missing]))
    command = ("-m", "bench.stand_in", "--port")
    with served(lambda port: python(*command, str(port)), cores=plan.cores.load) as upstream:
        yield Site(plan.folder.resolve(), plan.cores, upstream.url, store)


def _measure(plan: Plan, site: Site, row: Row, references: dict[Contestant, Server]) -> Measured:
    row.prepare(plan)
    listed = write_list(row.load, plan.names, plan.folder)
    measured = Measured({})
    with ExitStack() as stack:
        servers = {row.ours: references.get(row.ours) or stack.enter_context(row.ours.start(site))}
        if row.against is not None:
            servers[row.against] = references[row.against]
        _check_status(servers[row.ours], row.load)
        for server in servers.values():
            warm(plan, server, row.load)
            is_cold = row.load.names is not None and not row.load.names.warm
            send(replace(plan, seconds=_LONG_WARM_UP if is_cold else _WARM_UP), server, row.load, listed, "w")

        def run(one: Contestant) -> float:
            server = servers[one]
            found = measured.cpu.setdefault(one, [])
            before = server.cpu()
            done = send(plan, server, row.load, listed, f"{row.key}.{len(found)}")
            found.append((server.cpu() - before) / max(done.requests, 1))
            if one is row.ours:
                measured.failed += done.broken + (done.refused if row.load.status < 400 else 0)
            return done.rate

        measured.rates = interleaved(tuple(servers), plan.rounds, run)
    return measured


def _check_status(server: Server, load: Load) -> None:
    """Raises NotMeasured if the first request of a hot path is not answered as the row expects."""
    if load.names is not None:
        return
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE)
    connection.request("GET", load.path, headers=dict(line.split(": ", 1) for line in load.headers))
    status = connection.getresponse().status
    connection.close()
    if status != load.status:
        raise NotMeasured(f"not measured: {load.path} was answered with status {status} instead of {load.status}")


def _cells(row: Row, measured: Measured) -> tuple[str, ...]:
    ours = rate(measured.rates[row.ours])
    cpu = _microseconds(measured.cpu[row.ours])
    if row.against is None:
        return (row.what, ours, "–", "–", cpu, "–", f"{measured.failed:,}")
    of_reference = times(measured.rates[row.ours].over(measured.rates[row.against]))
    return (
        row.what,
        ours,
        row.against.name,
        of_reference,
        cpu,
        _microseconds(measured.cpu[row.against]),
        f"{measured.failed:,}",
    )


def _microseconds(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e6:.1f} µs"


def _claim(row: Row, measured: Measured) -> Claim:
    ours = Series(tuple(seconds * 1e6 for seconds in measured.cpu[row.ours]))
    if row.against is None:
        return Claim(f"{row.what}: CPU per answer", ours.median, "<=", row.wanted, "µs", (ours.low, ours.high))
    theirs = Series(tuple(seconds * 1e6 for seconds in measured.cpu[row.against]))
    ratio = theirs.over(ours)
    return Claim(f"{row.what} / {row.against.name}", ratio.median, ">=", row.wanted, "x", (ratio.low, ratio.high))
