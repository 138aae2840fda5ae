"""`python -m bench.day --minutes 30 --rate 200 --store sqlite|valkey` plays a day and prints what came of it.

Exits with 1 if a name that was answered before got no usable answer, or if an answer was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median, quantiles
from typing import Final

from bench.day.clients import CLIENTS, NAMES, NEW_SHARE, REST_SHARE, Clients, Tally
from bench.day.incidents import CLIENT_RATE, CONFIGURED, SQLITE, VALKEY, Incident, NotPlayed, Site, own_disk
from bench.day.judgement import Judgement, judge_incident
from bench.day.upstream import Upstream
from bench.day.watch import Watch
from bench.findings import Claim, Section, Table
from bench.report import write_section
from bench.verdict import Verdict, worst_burst
from tests.cluster.processes import Proxy
from tests.features.valkey.valkey_sentinel import running_sentinels

_RATE: Final = 60
_BURST: Final = 120
_CONCURRENCY: Final = 16
_SETTINGS: Final[dict[str, object]] = {
    "upstream_contact": "mailto:library@example.org",
    "upstream_rate": _RATE,
    "upstream_burst": _BURST,
    "upstream_max_concurrency": _CONCURRENCY,
    "upstream_breaker_cooldown": 5,
    "upstream_timeout": 5,
    "trusted_proxies": "127.0.0.1",
    "status_networks": "127.0.0.0/8",
    # Both are full after some minutes, and memory has to stay as it is from then on.
    "cache_memory_bytes": "2M",
    "express_memory_bytes": "2M",
    # Fits into half of a small disk.
    "store_max_bytes": "8M",
}
#: The shares of the day before the first incident and after the last one.
_BEFORE: Final = 1 / 30
_AFTER: Final = 1 / 3
#: The share of an incident's time in which it lasts. In the rest, everything works.
_LASTING: Final = 0.45
#: Minutes at the end in which memory must be flat, and the bytes a minute that count as flat.
_FLAT_MINUTES: Final = 10.0
_MAX_GROWTH: Final = 100_000.0
_MAX_LINE: Final = 300


@dataclass(frozen=True, slots=True)
class Played:
    """An incident that was played: what was read about it, and the answers while it lasted and after it."""

    incident: Incident
    judgement: Judgement
    sentences: tuple[str, ...]
    during: Tally
    after: Tally


@dataclass
class Day:
    """A day so far."""

    minutes: float
    clients: Clients
    watch: Watch
    site: Site
    played: list[Played] = field(default_factory=list)
    not_played: list[str] = field(default_factory=list)

    async def play(self, incidents: Sequence[Incident]) -> None:
        """All incidents, and the quiet before and after them."""
        seconds = self.minutes * 60
        slot = seconds * (1 - _BEFORE - _AFTER) / len(incidents)
        await asyncio.sleep(seconds * _BEFORE)
        self.watch.new_lines()
        for incident in incidents:
            _report(f"{incident.name} …")
            try:
                await self._play(incident, slot)
            except NotPlayed as reason:
                self.not_played.append(f"{incident.name}: {reason}")
        self.clients.stretch = "after all"
        _report("no incident …")
        await asyncio.sleep(seconds * _AFTER)

    async def _play(self, incident: Incident, slot: float) -> None:
        began = time.time()
        lasts = max(incident.seconds, slot * _LASTING)
        async with incident.lasts(self.site):
            self.clients.stretch = incident.name
            await asyncio.sleep(lasts * 0.7)
            sentences = tuple(dict.fromkeys(await self.watch.sentences()))
            await asyncio.sleep(lasts * 0.3)
        self.clients.stretch = f"after {incident.name}"
        await asyncio.sleep(slot * (1 - _LASTING))
        lines, events = self.watch.new_lines(), await self.watch.events(began)
        machines = len(self.site.proxies)
        judgement = judge_incident(incident, lines, events, machines=machines)
        tallies = self.clients.tallies
        played = Played(incident, judgement, sentences, tallies[incident.name], tallies[f"after {incident.name}"])
        self.played.append(played)
        _report(" | ".join(_row(played)))
        for line in (*judgement.others, *judgement.wrong_events):
            _report(f"    {line[:_MAX_LINE]}")


def main() -> int:
    """Play a day. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.day", description="A day with its incidents, shortened.")
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the day (default 30)")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second (default 200)")
    parser.add_argument("--store", choices=("sqlite", "valkey"), default="sqlite", help="one machine, or two on Valkey")
    parser.add_argument("--only", nargs="+", default=[], metavar="INCIDENT", help="play these incidents (default: all)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="copy the logs of the proxies to this folder")
    chosen = parser.parse_args()
    table = SQLITE if chosen.store == "sqlite" else VALKEY
    if unknown := set(chosen.only) - {incident.name for incident in table}:
        parser.error(f"there is no incident {', '.join(sorted(unknown))}")
    # SIGTERM raises an exception, which ends the processes of the day.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    incidents = [incident for incident in table if not chosen.only or incident.name in chosen.only]
    section = asyncio.run(_run(chosen.minutes, chosen.rate, chosen.store, incidents, chosen.logs))
    print(write_section(section), flush=True)
    return 0 if all(claim.holds for claim in section.claims[:2]) else 1


async def _run(minutes: float, rate: float, store: str, incidents: Sequence[Incident], logs: Path | None) -> Section:
    async with _site(store) as site:
        clients = Clients(rate, [proxy.port for proxy in site.proxies])
        day = Day(minutes, clients, Watch(site.proxies), site)
        load = asyncio.gather(clients.run(), day.watch.run())
        try:
            await day.play(incidents)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
            if logs is not None:
                for log in site.folder.glob("proxy-*.log"):
                    shutil.copy(log, logs)
        return _section(day)


@asynccontextmanager
async def _site(store: str) -> AsyncIterator[Site]:
    """One proxy, or two with one store."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="doi-proxy-day-")))
        (folder / "doi-proxy.toml").write_text(CONFIGURED.format(CLIENT_RATE))
        settings = {**_SETTINGS, "config": folder / "doi-proxy.toml"}
        upstream = await stack.enter_async_context(Upstream())
        sentinels, has_own_disk = None, False
        if store == "sqlite":
            has_own_disk = stack.enter_context(own_disk(folder / "disk"))
            proxies = [_proxy(stack, folder, upstream, f"sqlite:///{folder}/disk/store.sqlite3", settings)]
        else:
            sentinels = stack.enter_context(running_sentinels(folder))
            settings["instances"] = 2
            proxies = [_proxy(stack, folder, upstream, sentinels.url, settings) for _ in range(2)]
        for proxy in proxies:
            await proxy.ready()
            await proxy.serves()
        yield Site(folder, upstream, proxies, sentinels, has_own_disk)


def _proxy(
    stack: AsyncExitStack | ExitStack,
    folder: Path,
    upstream: Upstream,
    store: str,
    settings: dict[str, object],
) -> Proxy:
    proxy = Proxy(folder, upstream.url, store, **settings)
    stack.callback(_kill, proxy)
    return proxy


def _kill(proxy: Proxy) -> None:
    # The process of a proxy that was started again is another one.
    proxy.process.kill()


def _section(day: Day) -> Section:
    tallies = day.clients.tallies.values()
    verdicts = {verdict: sum(tally.verdicts[verdict] for tally in tallies) for verdict in Verdict}
    growths = {process: _growth(day, seen) for process, seen in day.watch.memory.items()}
    latest = {process: growth for process, growth in growths.items() if growth is not None}
    right = sum(played.judgement.is_right for played in day.played)
    claims = (
        Claim("5xx for names answered before", sum(tally.known_refused for tally in tallies), "<=", 0),
        Claim("wrong answers", verdicts[Verdict.WRONG], "<=", 0),
        Claim("incidents with one begin and one end, and their cause", right, ">=", len(day.played)),
        Claim("growth of a process at the end", max(latest.values(), default=0.0), "<=", _MAX_GROWTH, "bytes a minute"),
        Claim(
            "burst of upstream queries at the budget's rate",
            worst_burst(day.site.upstream.arrivals, _RATE),
            "<=",
            _BURST + _CONCURRENCY,
        ),
    )
    wrong = [
        f"{played.incident.name}: {line[:_MAX_LINE]}"
        for played in day.played
        for line in (*played.judgement.others, *played.judgement.wrong_events)
    ]
    return Section(
        f"A day of {day.minutes:g} minutes",
        _method(day),
        tables=(
            Table(_COLUMNS, tuple(_row(played) for played in day.played)),
            Table(("Answers", "number"), tuple((verdict.value, f"{number:,}") for verdict, number in verdicts.items())),
            _memory(day, latest),
        ),
        claims=claims,
        not_measured=(*(f"not played: {reason}" for reason in day.not_played), *wrong, *day.clients.faults),
    )


def _method(day: Day) -> str:
    site = day.site
    store = "one store in Valkey with Sentinels" if site.sentinels else "a store in SQLite"
    return (
        f"{day.clients.rate:g} requests a second by {CLIENTS} clients for {NAMES:,} names by Zipf, {REST_SHARE:.0%} "
        f"over REST, {NEW_SHARE:.0%} for names that are new; {len(site.proxies)} "
        f"proxies and {store}. TTLs are 5 s to two days. *Lines* are those that say the beginning and the end, "
        "and others; *events* those with the right cause, and others. *Known* names were answered before by any "
        "machine: 5xx, and connections that ended; *new* ones 5xx. "
        f"Load of the machine at the end: {os.getloadavg()[1]:.1f}."
    )


_COLUMNS: Final = (
    "incident",
    "lines",
    "events",
    "right",
    "known: 5xx",
    "ended",
    "new: 5xx",
    "p99",
    "/status, first sentence",
)


def _row(played: Played) -> tuple[str, ...]:
    judgement, both = played.judgement, (played.during, played.after)
    refused = sum(tally.verdicts[Verdict.COULD_NOT_VERIFY] for tally in both)
    known = sum(tally.known_refused for tally in both)
    return (
        played.incident.name,
        f"{judgement.begins}, {judgement.ends}, {len(judgement.others)}",
        f"{judgement.events}, {len(judgement.wrong_events)}",
        "yes" if judgement.is_right else "**no**",
        str(known),
        str(sum(tally.known_dropped for tally in both)),
        str(refused - known),
        f"{quantiles([0.0, *played.during.seconds, *played.after.seconds], n=100)[-1]:.2f} s",
        " / ".join(sentence[:80] for sentence in played.sentences),
    )


def _growth(day: Day, seen: Sequence[tuple[float, int]]) -> float | None:
    """Bytes a minute at the end of the day, None for a process that did not run all that time."""
    end = max(minutes for seen in day.watch.memory.values() for minutes, _ in seen)
    begin = end - min(_FLAT_MINUTES, day.minutes * _AFTER)
    recent = [(minutes, size) for minutes, size in seen if minutes >= begin]
    if len(recent) < 2 or seen[0][0] > begin or seen[-1][0] < end - 1:
        return None
    return linear_regression(*zip(*recent, strict=True)).slope


def _memory(day: Day, growths: dict[str, float]) -> Table:
    """The memory of each process, minute by minute, and its growth at the end."""
    rows = []
    for process, seen in day.watch.memory.items():
        minutes = sorted({int(at) for at, _ in seen})
        sizes = [median(size for at, size in seen if int(at) == minute) / 2**20 for minute in minutes]
        growth = f"{growths[process]:,.0f}" if process in growths else "-"
        rows.append((process, growth, f"from minute {minutes[0]}: " + " ".join(f"{size:.1f}" for size in sizes)))
    return Table(("Memory", "bytes a minute at the end", "MiB in each minute"), tuple(rows))


def _report(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
