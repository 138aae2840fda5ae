"""Connections beside those of nginx: new ones, TLS handshakes, and load while thousands of others are idle."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.contestants import EXPRESS_ON, NGINX_CACHE, Contestant, Site, nginx, proxy
from bench.findings import Claim, Section, Table
from bench.loads import OPEN_SECONDS, Latency, open_loop
from bench.names import HOT, path_of
from bench.nginx import CACHING_TLS
from bench.plan import Plan
from bench.requests import Load
from bench.rounds import Series, interleaved
from bench.servers import HOST, PATIENCE, Server
from bench.service import site_of
from bench.throughput import rate, send, times
from bench.tools import need

#: Idle connections. With a lower limit of open files, as many as it allows.
_IDLE: Final = 10_000
#: Files that are open besides.
_OTHER_FILES: Final = 500
#: Requests a second beside the idle connections.
_BESIDE: Final = 1_000
#: The least share of nginx's new connections and handshakes.
_WANTED: Final = 0.5
_REQUEST: Final = f"GET {path_of(HOT)} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode("ascii")
_TLS: Final = {"DOI_PROXY_TLS_CERT": "{folder}/cert.pem", "DOI_PROXY_TLS_KEY": "{folder}/key.pem"}

_OURS: Final = (EXPRESS_ON, proxy("doi-proxy, TLS", settings=_TLS, scheme="https"))
_THEIRS: Final = (NGINX_CACHE, nginx("nginx proxy_cache, TLS", CACHING_TLS, resolves=True, scheme="https"))
_KINDS: Final = ("new connections", "TLS handshakes")
_EACH_NEW: Final = Load("a new connection for each request", headers=("Connection: close",))


@dataclass(frozen=True, slots=True)
class Beside:
    """Load without and with idle connections, and the resident bytes of each of those."""

    connections: int
    alone: Latency
    crowded: Latency
    bytes_each: float


def connections(plan: Plan) -> tuple[Section, ...]:
    """Measure new connections and handshakes in turn, then load beside idle connections."""
    need("wrk", "h2load", "nginx", "openssl")
    with site_of(plan) as site, ExitStack() as stack:
        _write_certificate(site)
        running = {one: stack.enter_context(one.start(site)) for one in (*_OURS, *_THEIRS)}
        cpu: dict[Contestant, list[float]] = {one: [] for one in running}

        def run(one: Contestant) -> float:
            before = running[one].cpu()
            done = send(plan, running[one], _EACH_NEW, (), "")
            cpu[one].append((running[one].cpu() - before) / max(done.requests, 1))
            return done.rate

        rates = interleaved(tuple(running), plan.rounds, run)
        beside = {one: _beside(plan, running[one]) for one in (EXPRESS_ON, NGINX_CACHE)}
    return (_section(plan, rates, cpu, beside),)


def _write_certificate(site: Site) -> None:
    files = ["-keyout", str(site.folder / "key.pem"), "-out", str(site.folder / "cert.pem")]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench"]
    subprocess.run(["openssl", "req", "-x509", *kind, *files], check=True, capture_output=True)


def _beside(plan: Plan, server: Server) -> Beside:
    url = server.url + path_of(HOT)
    seconds = max(plan.seconds, OPEN_SECONDS)
    alone = open_loop(url, _BESIDE, seconds, plan.cores.load)
    before = server.resident()
    count = min(_IDLE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)
    with _idle(server, count):
        each = (server.resident() - before) / count
        crowded = open_loop(url, _BESIDE, seconds, plan.cores.load)
    return Beside(count, alone, crowded, each)


@contextmanager
def _idle(server: Server, count: int) -> Iterator[None]:
    """Connections that have had one answer each."""
    with ExitStack() as stack:
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((HOST, server.port), timeout=PATIENCE))
            one.sendall(_REQUEST)
            one.recv(65_536)
        yield


def _section(
    plan: Plan,
    rates: dict[Contestant, Series],
    cpu: dict[Contestant, list[float]],
    beside: dict[Contestant, Beside],
) -> Section:
    pairs = list(zip(_KINDS, _OURS, _THEIRS, strict=True))
    new = tuple(
        (
            what,
            rate(rates[ours]),
            rate(rates[theirs]),
            times(rates[ours].over(rates[theirs])),
            _us(cpu[ours]),
            _us(cpu[theirs]),
        )
        for what, ours, theirs in pairs
    )
    ratios = [(what, Series(tuple(cpu[theirs])).over(Series(tuple(cpu[ours])))) for what, ours, theirs in pairs]
    idle = tuple(
        (
            one.name,
            f"{found.connections:,}",
            f"{found.bytes_each / 1024:.1f} KiB",
            f"{found.alone.p99 * 1000:.2f} ms",
            f"{found.crowded.p99 * 1000:.2f} ms",
            f"{found.alone.failed + found.crowded.failed:,}",
        )
        for one, found in beside.items()
    )
    return Section(
        title="Connections",
        method=(
            f"wrk with `Connection: close`, {plan.seconds:g} s for each of {plan.rounds} rounds in turn. nginx has the "
            "same certificate (P-256) and the same versions of TLS. The same client chooses the cipher and resumes its "
            "sessions with both. A goal is the processor time of nginx divided by ours. Idle connections have had one "
            f"answer each. Beside them, h2load sends {_BESIDE:,} requests a second."
        ),
        tables=(
            Table(("A second", "doi-proxy", "nginx", "ratio", "CPU each", "CPU each, nginx"), new),
            Table(
                ("Beside idle connections", "idle", "memory of each", "p99 alone", "p99 beside them", "failed"), idle
            ),
        ),
        claims=tuple(Claim(f"{what} / nginx", it.median, ">=", _WANTED, "x", (it.low, it.high)) for what, it in ratios),
    )


def _us(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e6:.0f} µs"
