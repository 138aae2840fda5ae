"""The soak: two minutes of requests while every fifth upstream query fails. No answer may be wrong."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import msgspec
import uvloop

from bench.contestants import proxy_environment
from bench.findings import Claim, Section, Table
from bench.names import path_of, zipf
from bench.plan import Plan
from bench.records import answer_of
from bench.servers import Server, served
from bench.stand_in import StandIn, response
from bench.verdict import Answer, Verdict, is_registered, judge, most_in_a_second, ttl_of, worst_burst
from tests.constants import QUEUE_TIMEOUT, RECHECK, STALE_TIMEOUT, command
from tests.upstream.faults import FAULTS, Asked

NAMES: Final = 10_000
FAULT_SHARE: Final = 0.2
#: The budget: too small for all queries.
RATE: Final = 200.0
BURST: Final = 100.0
CONCURRENCY: Final = 16
_CLIENTS: Final = 24
_REST_SHARE: Final = 0.3
#: Seconds between two requests of a client. The soak must not saturate the proxy.
_PAUSE: Final = 0.005
_QUESTIONS: Final = 500_000
_LOOK_EVERY: Final = 1.0
_CLIENT_TIMEOUT: Final = 20.0
_MAX_GROWTH: Final = 1.10
_SEED: Final = 11
#: The faults of the upstream. `delay` is longer than the proxy's patience.
_KINDS: Final[tuple[tuple[str, dict[str, float]], ...]] = (
    ("reset", {}),
    ("close", {}),
    ("hang", {}),
    ("drip", {}),
    ("truncate", {}),
    ("delay", {"seconds": 0.6}),
    ("status", {"status": 500}),
    ("status", {"status": 503}),
    ("garbage", {}),
    ("html", {}),
    ("empty", {}),
    ("wrong_name", {}),
    ("code_2", {}),
    ("values_no_list", {}),
    ("not_http", {}),
)
_CONSTANTS: Final = {STALE_TIMEOUT: 0.3, RECHECK: 2, QUEUE_TIMEOUT: 1}
_SETTINGS: Final = {
    "DOI_PROXY_UPSTREAM_RATE": str(RATE),
    "DOI_PROXY_UPSTREAM_BURST": str(BURST),
    "DOI_PROXY_UPSTREAM_MAX_CONCURRENCY": str(CONCURRENCY),
    "DOI_PROXY_UPSTREAM_TIMEOUT": "1",
    "DOI_PROXY_UPSTREAM_BREAKER_COOLDOWN": "2",
    "DOI_PROXY_CACHE_NEGATIVE_TTL": "10",
}


def _command(port: int) -> list[str]:
    return [*command(_CONSTANTS), "serve", "--port", str(port)]


@dataclass(slots=True)
class Tally:
    """The results of the soak so far."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    arrivals: list[float] = field(default_factory=list)
    faults: int = 0
    resident: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Unreliable:
    """The upstream of the soak. It fails at random; whether it has a record depends only on the name."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._chance = random.Random(_SEED)

    async def __call__(self, name: str, writer: asyncio.StreamWriter) -> bool | None:
        """See stand_in.Answering."""
        self._tally.arrivals.append(time.monotonic())
        if self._chance.random() < FAULT_SHARE:
            self._tally.faults += 1
            kind, options = self._chance.choice(_KINDS)
            if not await FAULTS[kind](Asked(f"/api/handles/{name}", name, {}), writer, dict(options)):
                return False
            if kind != "delay":
                return True
        if is_registered(name):
            writer.write(response(200, "application/json", answer_of(name, ttl_of(name))))
        else:
            body = msgspec.json.encode({"responseCode": 100, "handle": name})
            writer.write(response(404, "application/json", body))
        return True


def soak(plan: Plan) -> tuple[Section, ...]:
    """Clients, the proxy and its unreliable upstream for `plan.soak_seconds`."""
    names = plan.names[:NAMES]
    for old in plan.folder.glob("soak.sqlite3*"):
        old.unlink()
    return (_section(plan, names, uvloop.run(_soaked(plan, names))),)


async def _soaked(plan: Plan, names: Sequence[str]) -> Tally:
    tally = Tally()
    async with StandIn(answering=Unreliable(tally)) as upstream:
        chosen = proxy_environment(upstream.url, f"sqlite:///{plan.folder / 'soak.sqlite3'}") | _SETTINGS
        with served(_command, cores=plan.cores.server, environment=chosen, path="/healthz") as server:
            questions = zipf(names, _QUESTIONS)
            ends = time.monotonic() + plan.soak_seconds
            await asyncio.gather(
                *(_client(server, questions[at::_CLIENTS], ends, tally, at) for at in range(_CLIENTS)),
                _watch(server, ends, tally),
            )
    return tally


async def _watch(server: Server, ends: float, tally: Tally) -> None:
    while time.monotonic() < ends:
        tally.resident.append(server.resident())
        await asyncio.sleep(_LOOK_EVERY)


async def _client(server: Server, names: Sequence[str], ends: float, tally: Tally, seed: int) -> None:
    chance = random.Random(seed)
    connection = Connection(server.port)
    for name in names:
        if time.monotonic() > ends:
            break
        path = path_of(name) if chance.random() > _REST_SHARE else "/api/handles" + path_of(name)
        began = time.perf_counter()
        answer = await connection.ask(path)
        tally.seconds.append(time.perf_counter() - began)
        verdict = Verdict.DROPPED if answer is None else judge(name, answer)
        tally.verdicts[verdict] += 1
        if verdict is Verdict.WRONG and len(tally.wrong) < 3:
            tally.wrong.append(f"{path}: {answer}"[:300])
        await asyncio.sleep(_PAUSE)
    connection.close()


class Connection:
    """One persistent connection to the proxy, with as little work for the client as possible."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str) -> Answer | None:
        """The answer to one GET, None if the connection ended or the deadline passed."""
        try:
            async with asyncio.timeout(_CLIENT_TIMEOUT):
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                self._writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode("ascii"))
                head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])}
                body = await self._reader.readexactly(int(fields["content-length"]))
        except (OSError, EOFError, TimeoutError):
            self.close()
            return None
        status = int(head[0].split(" ")[1])
        return Answer(status, fields.get("location", ""), fields.get("cache-status", ""), body)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer = None


def _section(plan: Plan, names: Sequence[str], tally: Tally) -> Section:
    third = max(1, len(tally.resident) // 3)
    # The medians of thirds: uncollected garbage at one moment must not decide.
    growth = median(tally.resident[-third:]) / median(tally.resident[third : 2 * third] or tally.resident)
    burst = worst_burst(tally.arrivals, RATE)
    return Section(
        title="Soak",
        method=_method(plan, names),
        tables=(_verdicts(plan, tally), _facts(tally, burst)),
        claims=(
            Claim("wrong answers in the soak", tally.verdicts[Verdict.WRONG], "<=", 0),
            Claim("burst of upstream queries at the budget's rate", burst, "<=", BURST + CONCURRENCY),
            Claim("memory, last third / middle third of the soak", growth, "<=", _MAX_GROWTH, "x"),
        ),
        not_measured=tuple(f"wrong: {one}" for one in tally.wrong),
    )


def _method(plan: Plan, names: Sequence[str]) -> str:
    return (
        f"{plan.soak_seconds:g} s, {_CLIENTS} clients, {len(names):,} names ({plan.names_from}), Zipf-distributed, "
        f"{_REST_SHARE:.0%} of the requests over REST, with an empty store. The upstream fails {FAULT_SHARE:.0%} of "
        f"the time, in {len(_KINDS)} ways; its TTLs are 5 s, 20 s, 60 s and two days, so records become stale. "
        f"The budget is {RATE:g} queries a second with bursts of {BURST:g}, at most {CONCURRENCY} in progress: too "
        "little for everything at first. A query may reach the upstream later than it was admitted, so the limit "
        "includes the queries in progress."
    )


def _verdicts(plan: Plan, tally: Tally) -> Table:
    total = tally.verdicts.total()
    rows = [(one.value, f"{tally.verdicts[one]:,}", f"{tally.verdicts[one] / max(total, 1):.2%}") for one in Verdict]
    rows.append(("all answers", f"{total:,}", f"{total / plan.soak_seconds:,.0f}/s"))
    return Table(("Answers by verdict", "number", "share"), tuple(rows))


def _facts(tally: Tally, burst: float) -> Table:
    questions = len(tally.arrivals)
    resident = (tally.resident[at] for at in (0, len(tally.resident) // 2, -1))
    facts = (
        ("upstream queries", f"{questions:,}"),
        ("of which failed on purpose", f"{tally.faults / max(questions, 1):.1%}"),
        ("most upstream queries in a second", f"{most_in_a_second(tally.arrivals):,}"),
        ("burst needed at the budget's rate", f"{burst:,.0f} of {BURST:,.0f} + {CONCURRENCY} in progress"),
        ("resident memory at start, middle, end", " / ".join(f"{one / 2**20:.0f} MiB" for one in resident)),
        (
            "median and highest latency of an answer",
            f"{median(tally.seconds) * 1000:.1f} ms / {max(tally.seconds):.2f} s",
        ),
    )
    return Table(("Soak", "measured"), facts)
