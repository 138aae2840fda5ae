"""The seconds from the start of the command to its first answer, with an empty store and with a million records."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bench.contestants import proxy_command, proxy_environment
from bench.findings import Claim, Section, Table
from bench.machine import pinned
from bench.names import HOT, path_of, synthetic
from bench.plan import LARGE, STORE_BYTES, Plan, build_store, entries_in
from bench.records import TEN_YEARS, entry_of
from bench.servers import answers, end, free_port, plain_environment, python, served
from bench.tools import NotMeasured
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.entry import Entry
from doi_proxy.features.sqlite.store import SqliteStore

RECORDS: Final = 1_000_000
_STARTS: Final = 5
_WITHIN: Final = 0.6
#: The imports that any service of this kind needs.
_IMPORTS: Final = "import fastapi, httpx, uvicorn"


def startup(plan: Plan) -> tuple[Section, ...]:
    """Measure starts with both stores in turn."""
    million = large_store(plan)
    empty = plan.folder / "empty.sqlite3"
    with _stand_in(plan) as upstream:
        seconds: dict[Path, list[float]] = {empty: [], million: []}
        imports: list[float] = []
        _first_answer(plan, upstream, million)  # compiles what is imported, as the first start of an installation does
        _importing(plan)
        for _ in range(_STARTS):
            for old in plan.folder.glob("empty.sqlite3*"):
                old.unlink()
            for store, found in seconds.items():
                found.append(_first_answer(plan, upstream, store))
            imports.append(_importing(plan))
    opened = _opening(million)
    labels = {empty: "empty store", million: f"store of {RECORDS:,} records, {million.stat().st_size / 2**20:,.0f} MiB"}
    timed = {labels[store]: found for store, found in seconds.items()} | {
        f"`{_IMPORTS}` alone, for comparison": imports
    }
    rows = [
        (label, f"{median(found):.2f} s", f"{min(found):.2f} to {max(found):.2f} s") for label, found in timed.items()
    ]
    rows.append(("of which opening that store and reading one record", f"{opened * 1000:.1f} ms", ""))
    claim = Claim(f"start to first answer, {RECORDS:,} records", median(seconds[million]), "<=", _WITHIN, "s")
    return (
        Section(
            title="Start-up",
            method=(
                f"From the start of `doi-proxy serve` to the end of its first answer, {_STARTS} times in turn; the "
                "median, lowest and highest. Files are in the system's cache and bytecode is compiled, as after any "
                "first start. With the empty store, the answer also needs an upstream query."
            ),
            tables=(Table(("Start-up", "first answer", "spread"), tuple(rows)),),
            claims=(claim,),
        ),
    )


def large_store(plan: Plan) -> Path:
    """The store of a million records. It takes a minute to build, so the next run uses it again."""
    path = plan.folder / LARGE
    if not path.exists() or entries_in(path) < RECORDS:
        now = time.time()
        build_store(path, _large(now))
    return path


def _large(now: float) -> Iterator[Entry]:
    yield entry_of(HOT, now, TEN_YEARS)
    for name in synthetic(RECORDS):
        yield entry_of(name, now, TEN_YEARS)


def _opening(path: Path) -> float:
    async def look() -> float:
        began = time.perf_counter()
        store = SqliteStore(path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
        found = await store.get(HOT)
        taken = time.perf_counter() - began
        await store.close()
        if found is None:
            raise NotMeasured("not measured: the large store lost its first record")
        return taken

    return median(asyncio.run(look()) for _ in range(_STARTS))


def _first_answer(plan: Plan, upstream: str, store: Path) -> float:
    port = free_port()
    environment = {**_compiled(plan), **proxy_environment(upstream, f"sqlite:///{store}")}
    began = time.perf_counter()
    process = subprocess.Popen(
        pinned(proxy_command(port), plan.cores.server),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        if not answers(port, path_of(HOT), process):
            raise NotMeasured("not measured: doi-proxy did not start")
        return time.perf_counter() - began
    finally:
        end(process)


def _compiled(plan: Plan) -> dict[str, str]:
    """An environment in which Python stores bytecode, in the folder of the measurement."""
    kept = {name: value for name, value in plain_environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(plan.folder.resolve() / "bytecode")}


def _importing(plan: Plan) -> float:
    command = pinned(python("-c", _IMPORTS), plan.cores.server)
    began = time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, env=_compiled(plan), check=True)
    return time.perf_counter() - began


@contextmanager
def _stand_in(plan: Plan) -> Iterator[str]:
    def command(port: int) -> list[str]:
        return python("-m", "bench.stand_in", "--port", str(port))

    with served(command, cores=plan.cores.load) as server:
        yield server.url
