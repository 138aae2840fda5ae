"""Lists of names: `POST /api/resolve` and `doi-proxy resolve`, beside plain httpx and beside single redirects."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Final

import httpx
import psutil

from bench.batch_peers import COUNTS, DELAY, is_unknown
from bench.contestants import proxy_command, proxy_environment
from bench.findings import Claim, Section, Table
from bench.names import HOT, path_of
from bench.plan import Plan
from bench.rounds import percentile
from bench.servers import Server, end, get, plain_environment, program, python, served
from doi_proxy.features.lists.batch import CONCURRENCY

#: Names in two spellings, as in a real list of a million.
_PAIRS: Final = 706
#: Names that plain httpx looks up: enough for a rate.
_PLAIN_NAMES: Final = 3_000
#: Lines that are sent in one piece.
_LINES: Final = 500
_WATCH_EVERY: Final = 0.02
#: Seconds until a list must be answered.
_PATIENCE: Final = 1_800
_MIB: Final = 1024 * 1024
_ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Lines:
    """A list. `distinct` is the number of its names, whatever their spelling."""

    texts: tuple[str, ...]
    distinct: int

    @property
    def unknown(self) -> int:
        """Lines whose name the upstream does not have."""
        return sum(map(is_unknown, self.texts))


@dataclass(frozen=True, slots=True)
class Run:
    """One list, answered. Memory is in bytes."""

    label: str
    seconds: float
    #: Whether the rows have the inputs of the list, in their order.
    is_in_order: bool
    verdicts: Counter[str]
    queries: int
    start_memory: int
    peak_memory: int


def choose_lines(names: Sequence[str], count: int) -> Lines:
    """A list with `count` lines. Its last ones are other spellings of its first ones."""
    usable = [name for name in names if name.isascii() and name.isprintable() and name not in (HOT, COUNTS)]
    pairs = min(_PAIRS, count // 20)
    texts = usable[: count - pairs]
    texts += [other for name in texts if (other := name.swapcase()) != name][:pairs]
    return Lines(tuple(texts), len(texts) - pairs)


def batch(plan: Plan) -> tuple[Section, ...]:
    """Lists of each size of the plan, by HTTP and by the command."""
    rows: list[tuple[str, ...]] = []
    redirects: list[tuple[str, ...]] = []
    claims: list[Claim] = []
    for size in plan.batch_sizes:
        lines = choose_lines(plan.names, size)
        runs: list[Run] = []
        with _upstream(plan) as upstream, _proxy(plan, upstream) as proxy:
            alone = _probe(proxy, lambda: time.sleep(plan.few_rounds * plan.seconds))
            beside = _probe(proxy, lambda: runs.append(_by_http(proxy, upstream, lines)))  # noqa: B023
            plain = asyncio.run(_by_httpx(upstream, lines.texts[:_PLAIN_NAMES]))
        with _upstream(plan) as upstream:
            runs.append(_by_command(upstream, lines))
        label = f"{len(lines.texts):,} lines"
        rows += [_row(label, run, lines) for run in runs]
        redirects += [_percentiles(f"{label}: before", alone), _percentiles(f"{label}: beside", beside)]
        claims += [_claim(label, run, lines) for run in runs]
        rate = len(lines.texts) / runs[0].seconds
        claims.append(Claim(f"{label}, HTTP: names/s / plain httpx", rate / plain, ">=", 0.5, "x"))
    columns = ("List", "names/s", "queries", "verdicts", "memory before", "peak", "rows, order, verdicts, queries")
    return (
        Section(
            title="Lists",
            method=(
                f"A list by HTTP and by the command, each with {CONCURRENCY} lookups at a time and an upstream that "
                f"answers after {DELAY * 1000:.0f} ms, as plain httpx in the same run. One name in ten is unknown. Up "
                f"to {_PAIRS} names have a second spelling, a list apart. A probe requests one cached name every 10 "
                "ms, before and during the list."
            ),
            tables=(
                Table(columns, tuple(rows)),
                Table(("Single redirects", "requests", "median", "p99", "longest"), tuple(redirects)),
            ),
            claims=tuple(claims),
        ),
    )


# --- The processes ----------------------------------------------------------------------------------------------------


def _upstream(plan: Plan) -> AbstractContextManager[Server]:
    def command(port: int) -> list[str]:
        return python("-m", "bench.batch_peers", "upstream", "--port", str(port))

    return served(command, cores=plan.cores.load)


def _environment(upstream: Server) -> dict[str, str]:
    return proxy_environment(upstream.url, "memory:")


def _proxy(plan: Plan, upstream: Server) -> AbstractContextManager[Server]:
    return served(proxy_command, cores=plan.cores.server, environment=_environment(upstream), path=path_of(HOT))


def _probe(proxy: Server, work: Callable[[], object]) -> list[float]:
    """The seconds of each redirect of one cached name while the work is done, in ascending order."""
    process = subprocess.Popen(
        python("-m", "bench.batch_peers", "probe", "--port", str(proxy.port)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=plain_environment(),
        cwd=_ROOT,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        work()
        output, _ = process.communicate(timeout=_PATIENCE)
        return sorted(json.loads(output))
    finally:
        end(process)


@contextmanager
def _peak(process: psutil.Process) -> Iterator[list[int]]:
    """The resident memory of a process: at the start, then the highest."""
    found = [process.memory_info().rss] * 2
    ended = Event()

    def watch() -> None:
        while not ended.wait(_WATCH_EVERY):
            with suppress(psutil.Error):
                found[1] = max(found[1], process.memory_info().rss)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


# --- One list ----------------------------------------------------------------------------------------------------


def _by_http(proxy: Server, upstream: Server, lines: Lines) -> Run:
    before = _queries(upstream)
    with _peak(psutil.Process(proxy.process.pid)) as memory:
        began = time.perf_counter()
        verdicts, is_in_order = asyncio.run(_post(proxy, lines))
        seconds = time.perf_counter() - began
    return Run("HTTP", seconds, is_in_order, verdicts, _queries(upstream) - before, *memory)


async def _post(proxy: Server, lines: Lines) -> tuple[Counter[str], bool]:
    async def body() -> AsyncIterator[bytes]:
        for start in range(0, len(lines.texts), _LINES):
            yield "".join(f"{text}\n" for text in lines.texts[start : start + _LINES]).encode()

    target = f"{proxy.url}/api/resolve?encoding=literal&fields=input,verdict"
    headers = {"content-type": "text/plain"}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=_PATIENCE) as client,
        client.stream("POST", target, content=body(), headers=headers) as answer,
    ):
        return _check([line async for line in answer.aiter_lines()], lines)


def _by_command(upstream: Server, lines: Lines) -> Run:
    """The command sends no request to a proxy: it resolves by itself."""
    command = [
        program("doi-proxy"),
        "resolve",
        "--encoding",
        "literal",
        "--fields",
        "input,verdict",
        "--output-format",
        "jsonl",
    ]
    with TemporaryDirectory() as folder:
        list_file, row_file = Path(folder, "names.txt"), Path(folder, "rows.jsonl")
        list_file.write_text("".join(f"{text}\n" for text in lines.texts), encoding="utf-8")
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--output", str(row_file), str(list_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**plain_environment(), **_environment(upstream)},
            cwd=_ROOT,
        )
        try:
            with _peak(psutil.Process(process.pid)) as memory:
                process.wait(_PATIENCE)
        finally:
            end(process)
        seconds = time.perf_counter() - began
        verdicts, is_in_order = _check(row_file.read_text(encoding="utf-8").splitlines(), lines)
    return Run("command", seconds, is_in_order, verdicts, _queries(upstream), *memory)


def _check(rows: Iterable[str], lines: Lines) -> tuple[Counter[str], bool]:
    """The verdicts, and whether the rows have the inputs in their order."""
    found = [json.loads(row) for row in rows]
    is_in_order = [row.get("input") for row in found] == list(lines.texts)
    return Counter(row.get("verdict", "error") for row in found), is_in_order


def _queries(upstream: Server) -> int:
    """The queries that the upstream has received."""
    queries, _ = json.loads(get(upstream.port, f"/api/handles/{COUNTS}"))
    return int(queries)


async def _by_httpx(upstream: Server, names: Sequence[str]) -> float:
    """Names a second of plain httpx with as many queries at a time."""
    left = iter(names)

    async def work(client: httpx.AsyncClient) -> None:
        for name in left:
            await client.get(f"{upstream.url}/api/handles{path_of(name)}")

    async with httpx.AsyncClient(trust_env=False, timeout=_PATIENCE) as client:
        began = time.perf_counter()
        await asyncio.gather(*(work(client) for _ in range(CONCURRENCY)))
        return len(names) / (time.perf_counter() - began)


# --- The tables ----------------------------------------------------------------------------------------------------


def _is_right(run: Run, lines: Lines) -> bool:
    expected = Counter(resolved=len(lines.texts) - lines.unknown, not_found=lines.unknown)
    return run.is_in_order and run.verdicts == expected and run.queries == lines.distinct


def _claim(label: str, run: Run, lines: Lines) -> Claim:
    return Claim(
        f"{label}, {run.label}: rows, order, verdicts and one query a name", float(_is_right(run, lines)), ">=", 1
    )


def _row(label: str, run: Run, lines: Lines) -> tuple[str, ...]:
    return (
        f"{label}, {run.label}",
        f"{len(lines.texts) / run.seconds:,.0f}",
        f"{run.queries:,} of {lines.distinct:,}",
        ", ".join(f"{verdict} {count:,}" for verdict, count in sorted(run.verdicts.items())),
        f"{run.start_memory / _MIB:,.0f} MiB",
        f"{run.peak_memory / _MIB:,.0f} MiB",
        "right" if _is_right(run, lines) else "**wrong**",
    )


def _percentiles(label: str, seconds: Sequence[float]) -> tuple[str, ...]:
    shown = (percentile(seconds, share) for share in (0.5, 0.99, 1.0))
    return (label, f"{len(seconds):,}", *(f"{one * 1000:,.1f} ms" for one in shown))
