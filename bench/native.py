"""A cold question to a handle server by each transport, beside one to an HTTP API: time and processor time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

import uvloop

from bench.findings import Section, Table
from bench.plan import Plan
from bench.servers import python, served
from doi_names.name import HandleName
from doi_proxy.assembly.settings import Settings
from doi_proxy.features.native.opening import QueryTokens, open_native
from doi_proxy.upstream.client import ClientIdentity, HandleClient, HttpOptions
from doi_proxy.upstream.source import Source, UpstreamQuery
from handle_protocol.wire.site_value import TransportProtocol

_NAMES: Final = 400
#: Questions at the same time: the proxy's default limit.
_TOGETHER: Final = 16
_HTTP_API: Final = "HTTP API"
#: Seconds a question: of time one after the other, and of processor time several at a time.
_Times = tuple[float, float]


def native(plan: Plan) -> tuple[Section, ...]:
    """The table of all transports, one at a time and several together."""

    def stand_in(port: int) -> list[str]:
        return python("-m", "bench.stand_in", "--port", str(port))

    def handle_stand_in(port: int) -> list[str]:
        return python("-m", "bench.handle_stand_in", "--port", str(port))

    with served(stand_in, cores=plan.cores.load) as api, served(handle_stand_in, cores=plan.cores.load) as server:
        return (uvloop.run(_measured(api.url, f"hdl://127.0.0.1:{server.port}", plan)),)


async def _measured(api: str, server: str, plan: Plan) -> Section:
    contestants: dict[str, Source] = {_HTTP_API: _open_api(api)}
    for protocol in (TransportProtocol.HTTP, TransportProtocol.UDP, TransportProtocol.TCP):
        label = "native, HTTP tunnel" if protocol is TransportProtocol.HTTP else f"native, {protocol.name}"
        contestants[label] = open_native(
            Settings(upstream_url=server), server, QueryTokens(_allow, _admit), only=protocol
        )
    found: dict[str, list[_Times]] = {label: [] for label in contestants}
    for number in range(plan.rounds + 1):
        for label, source in contestants.items():
            times = await _ask(source, f"10.5072/{number}.")
            if number:  # the first round warms up
                found[label].append(times)
    for source in contestants.values():
        await source.aclose()
    return _section(found)


def _section(found: dict[str, list[_Times]]) -> Section:
    return Section(
        title="Native protocol",
        method=(
            f"The upstream clients in this process, each stand-in in another; {_NAMES} new names a round, medians. "
            f"Time: one question after the other. CPU: this process alone, {_TOGETHER} questions at a time. "
            "Ratios are taken within a round."
        ),
        tables=(
            Table(
                ("Cold question", "time", "of HTTP API", "CPU", "of HTTP API"),
                tuple((label, *_columns(times, found[_HTTP_API])) for label, times in found.items()),
            ),
        ),
    )


def _columns(mine: Sequence[_Times], api: Sequence[_Times]) -> tuple[str, ...]:
    columns: list[str] = []
    for at in range(2):
        ratio = median(one[at] / other[at] for one, other in zip(mine, api, strict=True))
        columns += [f"{median(one[at] for one in mine) * 1e6:.0f} us", f"{ratio:.2f}x"]
    return tuple(columns)


async def _ask(source: Source, start: str) -> _Times:
    began = time.perf_counter()
    for number in range(_NAMES):
        await source.fetch(UpstreamQuery(HandleName(f"{start}a.{number}")))
    one_by_one = (time.perf_counter() - began) / _NAMES
    places = asyncio.Semaphore(_TOGETHER)

    async def admitted(number: int) -> None:
        async with places:
            await source.fetch(UpstreamQuery(HandleName(f"{start}b.{number}")))

    used = time.process_time()
    await asyncio.gather(*(admitted(number) for number in range(_NAMES)))
    return one_by_one, (time.process_time() - used) / _NAMES


def _open_api(url: str) -> HandleClient:
    settings = Settings(upstream_url=url)
    options = HttpOptions(total_timeout=settings.upstream_timeout)
    identity = ClientIdentity("doi-proxy-bench", None, "bench")
    return HandleClient(url, identity, options, clock=time.time, may_ask_again=_allow)


async def _allow() -> bool:
    return True


async def _admit() -> None:
    """No budget limits a measurement."""
