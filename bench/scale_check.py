"""The simulation beside a running proxy with the same requests, and the processor time of each kind of answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import uvloop

from bench.connection import Connection
from bench.contestants import proxy_command, proxy_environment
from bench.names import HOT, path_of, zipf
from bench.plan import Plan
from bench.records import LONG_TTL, answer_of, entry_of, values_of
from bench.servers import Server, get, served
from bench.simulation import Shares, SimulatedProxy, Sizes, simulate
from bench.stand_in import StandIn, response
from bench.tools import NotMeasured
from doi_names.name import fold
from doi_proxy.cache.entry import FOREVER
from handle_protocol.referral import Answer, ResponseCode

#: Of this many names, a tenth fits into the memory tier.
_NAMES: Final = 5_000
_MEMORY_SHARE: Final = 0.1
#: So short that records expire during the run, in seconds.
_SHORT_TTL: Final = 2
#: The smallest store that the settings allow. It has room for about a third of the names.
_SMALL_STORE: Final = 2**20
_ALL_NAMES: Final = 2**62
_CLIENTS: Final = 16
#: Answers from memory for each name, for their processor time.
_HITS: Final = 4
_STATUS: Final = "/healthz"


@dataclass(frozen=True, slots=True)
class Case:
    """A proxy: its store (None: memory alone), the TTL of all records in seconds, and the bytes of its store."""

    label: str
    store: str | None
    ttl: int
    store_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """What a running proxy did with the requests, and what the simulation did."""

    label: str
    requests: int
    program_share: float
    program_queries: int
    simulated: Shares


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds of an answer by its source, and resident bytes of an idle process."""

    memory: float
    store: float
    upstream: float
    resident: int


_CASES: Final = (
    Case("memory alone", None, LONG_TTL),
    Case("memory and store", "check.sqlite3", LONG_TTL),
    Case(f"memory and store, TTL {_SHORT_TTL} s", "short.sqlite3", _SHORT_TTL),
    Case(f"memory and a store of {_SMALL_STORE >> 20} MiB", "small.sqlite3", LONG_TTL, _SMALL_STORE),
)


class _Upstream:
    """The upstream's answers. Counts the queries."""

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self.queries = 0

    async def __call__(self, name: str, writer: asyncio.StreamWriter) -> bool | None:
        """See stand_in.Answering."""
        self.queries += 1
        writer.write(response(200, "application/json", answer_of(name, self._ttl)))
        return True


def compare(plan: Plan, requests: int) -> list[Compared]:
    """Send Zipf-distributed requests, one after the other, to proxies with small tiers and to the simulation."""
    names = plan.names[:_NAMES]
    questions = zipf(names, requests, plan.zipf_exponent)
    return [uvloop.run(_compare(plan, case, len(names), questions)) for case in _CASES]


async def _compare(plan: Plan, case: Case, names: int, questions: Sequence[str]) -> Compared:
    memory_bytes = int(names * _MEMORY_SHARE * entry_of(HOT, 0.0).size)
    upstream = _Upstream(case.ttl)
    async with StandIn(answering=upstream) as stand_in:
        chosen = proxy_environment(stand_in.url, _store(plan.folder, case.store))
        chosen["DOI_PROXY_CACHE_MEMORY_BYTES"] = str(memory_bytes)
        if case.store_bytes is not None:
            chosen["DOI_PROXY_STORE_MAX_BYTES"] = str(case.store_bytes)
        with served(proxy_command, cores=plan.cores.server, environment=chosen, path=_STATUS) as server:
            moments, hits = await _ask_in_turn(server, questions)
            stored = _ALL_NAMES if case.store_bytes is None else await asyncio.to_thread(_stored, server)
    sizes = Sizes(memory_bytes, stored if case.store else 0, case.ttl, FOREVER)
    proxy = SimulatedProxy(sizes, Answer(ResponseCode.SUCCESS, values_of(HOT, case.ttl)))
    simulated = simulate(proxy, zip(map(fold, questions), moments, strict=True))
    return Compared(case.label, len(questions), hits / len(questions), upstream.queries, simulated)


async def _ask_in_turn(server: Server, names: Sequence[str]) -> tuple[list[float], int]:
    """Request the names on one connection. Returns the time of each request, and the number of hits."""
    connection, moments, hits = Connection(server.port), [], 0
    for name in names:
        moments.append(time.monotonic())
        answer = await connection.ask(path_of(name))
        if answer is None or answer.status != 302:
            raise NotMeasured(f"not measured: the proxy did not redirect {name}: {answer}")
        hits += "; hit" in answer.cache_status
    connection.close()
    return moments, hits


def _stored(server: Server) -> int:
    """The entries of the store, by the proxy's metrics."""
    for line in get(server.port, "/metrics").decode().splitlines():
        name, _, value = line.partition(" ")
        if name == "doi_proxy_store_entries":
            return int(float(value))
    raise NotMeasured("not measured: /metrics has no doi_proxy_store_entries")


def measure_costs(plan: Plan, names: int) -> Costs:
    """The processor time of answers from each tier: each of so many names from the upstream, memory and the store.

    The least of several measurements: other work on the machine only adds to a processor time.
    """
    found = [uvloop.run(_measure_costs(plan, plan.names[:names])) for _ in range(plan.few_rounds)]
    return Costs(
        min(one.memory for one in found),
        min(one.store for one in found),
        min(one.upstream for one in found),
        min(one.resident for one in found),
    )


async def _measure_costs(plan: Plan, names: Sequence[str]) -> Costs:
    async with StandIn() as stand_in:
        chosen = proxy_environment(stand_in.url, _store(plan.folder, "costs.sqlite3"))
        with served(proxy_command, cores=plan.cores.server, environment=chosen, path=_STATUS) as server:
            resident = server.resident()
            upstream = await _cost(server, names)
            memory = await _cost(server, list(chain.from_iterable([names] * _HITS)))
        with served(proxy_command, cores=plan.cores.server, environment=chosen, path=_STATUS) as server:
            store = await _cost(server, names)
    return Costs(memory, store, upstream, resident)


async def _cost(server: Server, names: Sequence[str]) -> float:
    """Processor seconds of the server for each answer."""
    before = server.cpu()
    await asyncio.gather(*(_ask_in_turn(server, names[at::_CLIENTS]) for at in range(_CLIENTS)))
    return (server.cpu() - before) / len(names)


def _store(folder: Path, name: str | None) -> str:
    """The URL of an empty store."""
    if name is None:
        return "memory:"
    for old in folder.glob(f"{name}*"):
        old.unlink()
    return f"sqlite:///{folder / name}"
