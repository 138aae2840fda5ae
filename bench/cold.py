"""The cold path: what doi-proxy adds to the upstream question that a new name costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import uvloop

from bench.findings import Claim, Section, Table
from bench.in_process import InProcess, in_process
from bench.names import path_of
from bench.plan import STORE_BYTES, Plan
from bench.records import LONG_TTL, answer_of
from bench.servers import python, served
from doi_names.presentation import read_path
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.upstream.source import Source, UpstreamQuery
from handle_protocol.referral import Answer, read_answer

_NAMES: Final = 600
_UNTIMED: Final = 50
#: Questions at the same time: the proxy's default cap.
_TOGETHER: Final = 16
#: In their order; the rest of the time is in the last one.
SPANS: Final = ("parse", "lookup", "queue", "ask", "decode", "store")
REST: Final = "answer"
#: The httpx client of one measurement asks like this.
Ask = Callable[[str], Awaitable[object]]


class Spans:
    """Seconds spent in each span of the request under way."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(SPANS, 0.0)

    @contextmanager
    def timed(self, span: str) -> Iterator[None]:
        """Add the time of a block to a span."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[span] += time.perf_counter() - began


class TimedCache(TieredStore):
    """A cache whose reads and writes are timed."""

    def __init__(self, path: Path, spans: Spans) -> None:
        store = SqliteStore(path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
        super().__init__(MemoryStore(STORE_BYTES, clock=time.time), store, clock=time.time, ceiling=LONG_TTL)
        self._spans = spans

    async def get(self, key: str, *, newest: bool = False) -> Entry | None:
        """See TieredStore."""
        with self._spans.timed("lookup"):
            return await super().get(key)

    async def put(
        self, entry: Entry, announce: bool = False, *, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """See TieredStore."""
        with self._spans.timed("store"):
            await super().put(entry, announce, sent_at=sent_at, unless_newer=unless_newer)


class TimedSource:
    """A Source whose questions are timed: their wait for the budget, and the time after it."""

    def __init__(self, upstream: Source, spans: Spans) -> None:
        self._upstream = upstream
        self._spans = spans
        self.aclose = upstream.aclose

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """See Source."""
        began = left = time.perf_counter()

        def leave() -> None:
            nonlocal left
            left = time.perf_counter()

        answer = await self._upstream.fetch(replace(query, leaves=leave))
        self._spans.seconds["queue"] += left - began
        self._spans.seconds["ask"] += time.perf_counter() - left
        return answer


def cold(plan: Plan) -> tuple[Section, ...]:
    """The spans of a cold redirect beside a plain httpx.get, one at a time and several together."""

    def stand_in(port: int) -> list[str]:
        return python("-m", "bench.stand_in", "--port", str(port))

    with served(stand_in, cores=plan.cores.load) as upstream:
        return (uvloop.run(_measured(upstream.url, plan)),)


async def _measured(url: str, plan: Plan) -> Section:
    for old in plan.folder.glob("cold.sqlite3*"):
        old.unlink()
    spans = Spans()
    cache = TimedCache(plan.folder / "cold.sqlite3", spans)
    async with (
        in_process(cache, partial(TimedSource, spans=spans), upstream_url=url) as one,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        rounds = [(await _spans(one, spans, "a"), await _plain(client, url))]
        rounds += [(await _spans(one, spans, f"b{number}"), await _plain(client, url)) for number in range(plan.rounds)]
        rounds = rounds[1:]  # the first one warms up
        together = [await _together(one, client, url, number) for number in range(plan.rounds)]
    plain = median(seconds for _, seconds in rounds)
    medians = {span: median(found[span] for found, _ in rounds) for span in (*SPANS, REST)}
    return _section(medians, plain, together)


def _section(spans: dict[str, float], plain: float, together: list[tuple[float, float]]) -> Section:
    total = sum(spans.values())
    rows = [(span, _shown(seconds), f"{seconds / total:.0%}") for span, seconds in spans.items()]
    rows += [
        ("whole cold answer", _shown(total), "100%"),
        ("plain httpx.get of the same", _shown(plain), f"{plain / total:.0%}"),
        ("added by doi-proxy", _shown(total - plain), f"{(total - plain) / total:.0%}"),
        (f"CPU of each of {_TOGETHER} at a time, doi-proxy", _shown(median(ours for ours, _ in together)), ""),
        (f"CPU of each of {_TOGETHER} at a time, httpx.get", _shown(median(theirs for _, theirs in together)), ""),
    ]
    ratios = sorted(ours / theirs for ours, theirs in together)
    return Section(
        title="Cold path",
        method=(
            f"The application in this process, a SQLite store, the stand-in in another process; {_NAMES} new names one "
            "after the other, medians. `ask` is the upstream client without `decode`; `answer` is all the rest: "
            "routing, the single flight's task, the target and the headers. With several at a time, the time is the "
            "processor time of this process, divided by the names."
        ),
        tables=(Table(("Cold redirect", "time", "share"), tuple(rows)),),
        claims=(Claim("CPU of a cold answer / httpx.get", median(ratios), "<=", 0.5, "x", (ratios[0], ratios[-1])),),
    )


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


async def _spans(one: InProcess, spans: Spans, tag: str) -> dict[str, float]:
    """The median of each span, for new names. Parsing and decoding are timed again on their own afterwards."""
    found: list[dict[str, float]] = []
    for number in range(_NAMES + _UNTIMED):
        name = f"10.5072/{tag}.{number}"
        path, answer = path_of(name), answer_of(name)
        spans.seconds = dict.fromkeys(SPANS, 0.0)
        began = time.perf_counter()
        status = await one.ask(path)
        total = time.perf_counter() - began
        assert status == 302, status
        with spans.timed("parse"):
            read_path(path.encode("ascii"))
        with spans.timed("decode"):
            read_answer(answer, name)
        found.append(divided(spans.seconds, total))
    return {span: median(each[span] for each in found[_UNTIMED:]) for span in (*SPANS, REST)}


def divided(seconds: dict[str, float], total: float) -> dict[str, float]:
    """The spans without what is inside another one, and the rest of the total."""
    alone = {**seconds, "ask": seconds["ask"] - seconds["decode"]}
    return {**alone, REST: total - sum(alone.values())}


async def _plain(client: httpx.AsyncClient, url: str) -> float:
    found = []
    for number in range(_NAMES):
        began = time.perf_counter()
        await client.get(f"{url}/api/handles/10.5072/plain.{number}")
        found.append(time.perf_counter() - began)
    return median(found)


async def _together(one: InProcess, client: httpx.AsyncClient, url: str, number: int) -> tuple[float, float]:
    ours = await _crowd(lambda tail: one.ask(path_of(f"10.5072/crowd.{number}.{tail}")))
    theirs = await _crowd(lambda tail: client.get(f"{url}/api/handles/10.5072/crowd.{number}.{tail}"))
    return ours, theirs


async def _crowd(ask: Ask) -> float:
    """The processor time of each question, several of them at a time."""
    places = asyncio.Semaphore(_TOGETHER)

    async def admitted(number: int) -> None:
        async with places:
            await ask(str(number))

    began = time.process_time()
    await asyncio.gather(*(admitted(number) for number in range(_NAMES)))
    return (time.process_time() - began) / _NAMES
