"""The cold path: what doi-proxy adds to the upstream question that a new name costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import httpx
import uvloop

from app.cache.tiered import TieredStore
from app.doi.presentation import read_path
from app.handle.answer import read_answer
from app.upstream.budget import Budget
from app.upstream.client import HandleApi
from bench.findings import Claim, Section, Table
from bench.in_process import InProcess, in_process
from bench.names import path_of
from bench.plan import Plan
from bench.servers import python, served

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

    def call(self, span: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is added to a span."""

        def work(*arguments: Any, **named: Any) -> Any:
            with self.timed(span):
                return function(*arguments, **named)

        return work

    def awaited(self, span: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A coroutine function whose time, waiting included, is added to a span."""

        async def work(*arguments: Any, **named: Any) -> Any:
            with self.timed(span):
                return await function(*arguments, **named)

        return work

    def admitted(self, admit: Callable[..., Any]) -> Callable[..., Any]:
        """Budget.admit with the time until it lets in."""

        @asynccontextmanager
        async def work(*arguments: Any, **named: Any) -> AsyncIterator[None]:
            began = time.perf_counter()
            async with admit(*arguments, **named):
                self.seconds["queue"] += time.perf_counter() - began
                yield

        return work


@contextmanager
def instrumented() -> Iterator[Spans]:
    """Time the public seams between the parts."""
    spans = Spans()
    seams: dict[str, Callable[..., Any]] = {
        "app.web.application.read_path": spans.call("parse", read_path),
        "app.cache.tiered.TieredStore.get": spans.awaited("lookup", TieredStore.get),
        "app.upstream.budget.Budget.admit": spans.admitted(Budget.admit),
        "app.upstream.client.HandleApi.ask": spans.awaited("ask", HandleApi.ask),
        "app.upstream.client.read_answer": spans.call("decode", read_answer),
        "app.cache.tiered.TieredStore.put": spans.awaited("store", TieredStore.put),
    }
    with ExitStack() as stack:
        for seam, instead in seams.items():
            stack.enter_context(patch(seam, instead))
        yield spans


def cold(plan: Plan) -> tuple[Section, ...]:
    """The spans of a cold redirect beside a plain httpx.get, one at a time and several together."""

    def stand_in(port: int) -> list[str]:
        return python("-m", "bench.stand_in", "--port", str(port))

    with served(stand_in, cores=plan.cores.load) as upstream:
        return (uvloop.run(_measured(upstream.url, f"sqlite:///{plan.folder / 'cold.sqlite3'}", plan)),)


async def _measured(url: str, store: str, plan: Plan) -> Section:
    for old in plan.folder.glob("cold.sqlite3*"):
        old.unlink()
    async with in_process(upstream_url=url, store_url=store) as one, httpx.AsyncClient(trust_env=False) as client:
        rounds = [(await _spans(one, "a", url), await _plain(client, url))]
        rounds += [(await _spans(one, f"b{number}", url), await _plain(client, url)) for number in range(plan.rounds)]
        rounds = rounds[1:]  # the first one warms up
        together = [await _together(one, client, url, number) for number in range(plan.rounds)]
    plain = median(seconds for _, seconds in rounds)
    spans = {span: median(found[span] for found, _ in rounds) for span in (*SPANS, REST)}
    return _section(spans, plain, together)


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
        claims=(Claim("CPU of a cold answer / httpx.get", median(ratios), "<=", 0.7, "x", (ratios[0], ratios[-1])),),
    )


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


async def _spans(one: InProcess, tag: str, url: str) -> dict[str, float]:
    """The median of each span, for new names."""
    found: list[dict[str, float]] = []
    with instrumented() as spans:
        for number in range(_NAMES + _UNTIMED):
            spans.seconds = dict.fromkeys(SPANS, 0.0)
            began = time.perf_counter()
            status = await one.ask(path_of(f"10.5072/{tag}.{number}"))
            total = time.perf_counter() - began
            assert status == 302, status
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
