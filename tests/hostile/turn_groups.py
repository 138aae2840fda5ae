"""Runs the groups of requests of tests/hostile/turn_rows.py, and measures the longest turn of each endpoint."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from doi_proxy.cache.entry import Entry
from handle_protocol.referral import Answer, ResponseCode
from tests.hostile import turn_units
from tests.hostile.signed import certified_exchanges, signed_upstream
from tests.hostile.turn_rows import (
    STORED,
    STORED_PREFIX,
    TOKEN,
    admin_exchanges,
    name_exchanges,
    operation_exchanges,
    text_exchanges,
)
from tests.hostile.turn_units import Unit
from tests.hostile.turns import MAX_TURN_MS, REPEATS, Exchange, TimedProxy, is_short
from tests.parts import usual_cache

_SERVE: Final = ["serve", "--host", "127.0.0.1"]
#: Seconds for what a proxy does after its start: it compiles templates in a thread.
_SETTLING: Final = 1.0
_VALUES: Final = b'[{"index":1,"type":"URL","data":"https://example.org/"}]'

#: A longer turn counts at once, in milliseconds: what a process does once, such as an import, does not come again.
_ONCE_MS: Final = 4 * MAX_TURN_MS

Exchanges = Callable[[int], Iterator[Exchange]]


def _service_exchanges(number: int) -> Iterator[Exchange]:
    yield from name_exchanges(number)
    yield from text_exchanges()
    yield from operation_exchanges()
    yield from admin_exchanges()


#: Each group has a process of its own, which starts for seconds: its arguments, and its requests, given the number of
#: the repetition.
GROUPS: Final[dict[str, tuple[list[str], Exchanges]]] = {
    "service": (_SERVE, _service_exchanges),
    "certified": (_SERVE, lambda number: certified_exchanges()),
    "own pages": (_SERVE, name_exchanges),
}
UNITS: Final[dict[str, Callable[[], Iterator[Unit]]]] = {
    "readers": turn_units.readers,
    "bundle lines": turn_units.bundle_lines,
    "native messages": turn_units.native_messages,
    "texts": turn_units.texts,
}


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest turn of an endpoint or a unit, in milliseconds, and the input that took it."""

    name: str
    largest: str
    milliseconds: float
    status: int = 0


async def measure_group(group: str, folder: Path, upstream_url: str) -> list[Longest]:
    """Send the requests of a group to a process of its own. What is a little over the bound is sent again."""
    words, exchanges = GROUPS[group]
    async with _prepared(group, folder, upstream_url) as settings:
        proxy = TimedProxy(folder, words, settings)
        try:
            await proxy.wait_for("/healthz")
            await asyncio.sleep(_SETTLING)
            measured = [await _measure(proxy, exchange) for exchange in exchanges(0)]
            for number in range(1, REPEATS):
                for at, exchange in enumerate(exchanges(number)):
                    if measured[at].milliseconds > MAX_TURN_MS and is_short(measured[at].milliseconds, _ONCE_MS):
                        again = await _measure(proxy, exchange)
                        measured[at] = min(measured[at], again, key=lambda one: one.milliseconds)
            return measured
        finally:
            proxy.process.kill()


@asynccontextmanager
async def _prepared(group: str, folder: Path, upstream_url: str) -> AsyncIterator[dict[str, object]]:
    """The settings of a group's process, whose store and upstream are ready."""
    settings: dict[str, object] = {"upstream_url": upstream_url, "store_url": "memory:", "admin_token": TOKEN}
    settings |= {"upstream_rate": 100_000, "upstream_burst": 100_000}
    if group == "service":
        settings["store_url"] = store_url = f"sqlite:///{folder}/{group}.sqlite3"
        await _fill(store_url)
    if group == "own pages":
        settings |= _write_own_pages(folder)
    if group != "certified":
        yield settings
        return
    async with signed_upstream(folder) as upstream:
        yield settings | upstream


def _write_own_pages(folder: Path) -> dict[str, object]:
    """A template in place of each of ours, which extends it. Returns the settings."""
    (folder / "branding.toml").write_text('accent = "#123456"\n', "utf-8")
    own = folder / "templates"
    own.mkdir()
    for name in ("found", "values", "locations", "not_found", "home", "help", "error"):
        (own / f"{name}.html").write_text(f'{{% extends "doi-proxy/{name}.html" %}}', "utf-8")
    return {"branding_folder": folder, "branding_name": "Institute"}


async def _measure(proxy: TimedProxy, exchange: Exchange) -> Longest:
    milliseconds, answered = await proxy.measure(exchange)
    return Longest(exchange.endpoint, exchange.largest, milliseconds, answered.status)


async def _fill(store_url: str) -> None:
    cache, now = usual_cache(store_url, clock=time.time), time.time()
    for number in range(STORED):
        answer = Answer(ResponseCode.SUCCESS, _VALUES)
        await cache.put(Entry(f"{STORED_PREFIX}/{number}", answer, now, now + 86_400, now + 2 * 86_400))
        if not number % 500:
            await cache.flush()
    await cache.flush()
    await cache.close()


def measure_unit(unit: Unit) -> Longest:
    """The longest turn of a unit. One over the bound is done again.

    No collection of garbage falls into a turn: here it takes 40 ms, for the objects of all tests.
    """
    gc.disable()
    try:
        return Longest(unit.name, unit.largest, min(_repeat(unit)))
    finally:
        gc.enable()


def _repeat(unit: Unit) -> Iterator[float]:
    for _ in range(REPEATS):
        milliseconds = max(_turns(unit))
        yield milliseconds
        if is_short(milliseconds):
            return


def _turns(unit: Unit) -> Iterator[float]:
    for step in unit.prepare():
        began = time.thread_time()
        goes_on = turn_units.attempt(step)
        yield (time.thread_time() - began) * 1000
        if not goes_on:
            return


def list_worst(measured: list[Longest]) -> list[Longest]:
    """The longest turn of each endpoint or unit, the longest first."""
    worst: dict[str, Longest] = {}
    for one in sorted(measured, key=lambda one: one.milliseconds):
        worst[one.name] = one
    return sorted(worst.values(), key=lambda one: -one.milliseconds)
