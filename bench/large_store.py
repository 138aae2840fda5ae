"""A large store of registry records with names of real shapes: import, size, look-ups, start, and a sealed proxy."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote

from bench.agency_files import SAMPLES, write_agency_files
from bench.contestants import proxy_command
from bench.findings import Claim, Section, Table
from bench.large_import import Imported, import_tables, import_with_kills, write_tables
from bench.names import path_of
from bench.plan import STORE_BYTES, Plan
from bench.registry_names import RegistryNames, url_of
from bench.servers import HOST, PATIENCE, Server, plain_environment, program, served
from bench.tools import NotMeasured
from doi_proxy.assembly.features import find_records
from doi_proxy.features.sqlite.store import SqliteStore

#: The store that the large one is compared with.
SMALL: Final = 250_000
#: Look-ups of each measurement, and those for which the file is dropped from the system's cache before each.
_WARM: Final = 20_000
_COLD: Final = 400
_OPENINGS: Final = 5
#: Room that must be left on the disk, in bytes.
_SPARE: Final = 10 * 2**30
_BYTES_A_RECORD: Final = 160
_RECORDS_A_SECOND: Final = 60_000
#: The tables, two stores, and the runs of an import.
_BYTES_ON_DISK: Final = 350
#: Records in the files of each agency's format.
_AGENCY_RECORDS: Final = 300_000
#: Names that the sealed proxy is asked for, and those of a list.
_SEALED: Final = 100_000
_LISTED: Final = 20_000
_SEED: Final = 13


@dataclass(frozen=True, slots=True)
class LookUps:
    """Microseconds of look-ups: the median and the 99th percentile, from the disk and from the system's cache."""

    cold: tuple[float, float]
    warm: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sealed:
    """Answers of a sealed proxy: names, right redirects, seconds, and seconds of processor time."""

    names: int
    right: int
    seconds: float
    cpu: float


def large_store(plan: Plan) -> tuple[Section, ...]:
    """Build both stores and measure them in turn. Raises NotMeasured if the disk has no room."""
    free = shutil.disk_usage(plan.folder).free
    if free < plan.records * _BYTES_ON_DISK + _SPARE:
        raise NotMeasured(f"not measured: the disk has {free / 2**30:.0f} GiB left, too little for this many records")
    with TemporaryDirectory(dir=plan.folder) as folder:
        return (_measure(plan, Path(folder)),)


def _measure(plan: Plan, folder: Path) -> Section:
    stores = [_build(plan, folder, count) for count in (SMALL, plan.records)]
    small, large = (asyncio.run(look_up(store)) for store in stores)
    openings = [asyncio.run(opening(store)) for store in stores]
    starts = [median(first_answer(store) for _ in range(_OPENINGS)) for store in stores]
    killed = import_with_kills(folder / str(plan.records), folder / "killed.sqlite3", stores[1].names)
    sealed = answer_sealed(folder / "killed.sqlite3", stores[1].names)
    sizes = f"{plan.records:,} records to {SMALL:,}"
    rows = [(f"table, {store.names.records:,} records", store) for store in stores]
    rows += [_import_agency(plan, folder, agency) for agency in SAMPLES]
    imports = tuple(
        (
            label,
            f"{store.names.records / store.seconds:,.0f}",
            f"{store.cpu / store.names.records * 1e6:.1f} µs",
            f"{store.peak / 2**20:.0f} MiB",
            f"{store.bytes / store.names.records:.1f} B",
            f"{store.bytes / 2**20:,.0f} MiB",
        )
        for label, store in rows
    )
    times = tuple(
        (
            f"{store.names.records:,} records",
            *(f"{value:.0f} µs" for value in (*one.cold, *one.warm)),
            f"{opened * 1000:.1f} ms",
            f"{start:.2f} s",
        )
        for store, one, opened, start in zip(stores, (small, large), openings, starts, strict=True)
    )
    return Section(
        title="Large store",
        method=(
            f"`doi-proxy cache import` of tables with generated names and URLs ({_describe(stores[1].names)}), in an"
            " order that is not that of their keys, and of compressed lines in the formats of the agencies; processor"
            " time of all processes, memory of the largest one."
            f" Look-ups are of names at random by the store's own `get`: {_COLD} with the file dropped from the"
            f" system's cache before each, and {_WARM:,} from the cache. A second import of the large tables was killed"
            f" (SIGKILL) while {' and while '.join(killed)}, and continued: it had every record once. A sealed proxy"
            f" then answered for {sealed.names:,} of its names over one connection: {sealed.right:,} redirects were"
            f" right, {sealed.names / sealed.seconds:,.0f} a second, {sealed.cpu / sealed.names * 1e6:.0f} µs of"
            " processor time each."
        ),
        tables=(
            Table(("Import", "records/s", "processor time", "memory", "a record", "file"), imports),
            Table(("Look-up", "cold", "cold, p99", "cached", "cached, p99", "opening", "start to answer"), times),
        ),
        claims=(
            Claim("bytes a record", stores[1].bytes / plan.records, "<=", _BYTES_A_RECORD, "B"),
            Claim("records a second", plan.records / stores[1].seconds, ">=", _RECORDS_A_SECOND),
            Claim(f"cold look-up, {sizes}", large.cold[0] / small.cold[0], "<=", 1.5),
            Claim(f"cached look-up, {sizes}", large.warm[0] / small.warm[0], "<=", 1.5),
            Claim("opening", openings[1], "<=", 1.0, "s"),
            Claim(f"start to first answer, {sizes}", starts[1] / starts[0], "<=", 1.1),
            Claim("right redirects of the sealed proxy", sealed.right / sealed.names, ">=", 1.0),
            Claim("a row of `doi-proxy resolve --only-cached`", resolve_list(stores[1]), "<=", 60.0, "µs"),
        ),
    )


def _build(plan: Plan, folder: Path, records: int) -> Imported:
    names = RegistryNames(plan.names, records)
    tables = folder / str(records)
    if not tables.exists():
        write_tables(tables, names)
    return import_tables(tables, folder / f"{records}.sqlite3", names)


def _import_agency(plan: Plan, folder: Path, agency: str) -> tuple[str, Imported]:
    """Import files in the format of an agency."""
    names = RegistryNames(plan.names, _AGENCY_RECORDS)
    size = write_agency_files(folder / agency, agency, names)
    label = f"{agency}, {names.records:,} records of {size / 1000:.1f} kB"
    return label, import_tables(folder / agency, folder / f"{agency}.sqlite3", names)


def first_answer(built: Imported) -> float:
    """Seconds from the start of a sealed proxy to its first answer."""
    began = time.perf_counter()
    with _sealed(built.path, path_of(built.names.name(0))):
        return time.perf_counter() - began


def answer_sealed(path: Path, names: RegistryNames) -> Sealed:
    """Ask a sealed proxy for names at random over one connection, and compare the locations."""
    chance = random.Random(_SEED)
    chosen = [names.name(chance.randrange(names.records)) for _ in range(_SEALED)]
    with _sealed(path, path_of(chosen[0])) as server:
        cpu, began, right = server.cpu(), time.perf_counter(), 0
        connection = HTTPConnection(HOST, server.port, timeout=PATIENCE)
        for name in chosen:
            connection.request("GET", path_of(name))
            answer = connection.getresponse()
            answer.read()
            status = answer.getheader("Cache-Status", "")
            right += unquote(answer.getheader("Location", "")) == unquote(url_of(name)) and "detail=registry" in status
        connection.close()
        return Sealed(len(chosen), right, time.perf_counter() - began, server.cpu() - cpu)


def resolve_list(built: Imported) -> float:
    """Microseconds of processor time of a row: of a list of names at random, without the start of the command."""
    chance = random.Random(_SEED)
    names = [built.names.name(chance.randrange(built.names.records)) for _ in range(_LISTED)]
    start, whole = (_resolve(built.path, listed) for listed in (names[:1], names))
    return (whole - start) / len(names) * 1e6


def _resolve(store: Path, names: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [program("doi-proxy"), "resolve", "--only-cached", "--store-url", f"sqlite:///{store}", "-"],
        input="\n".join(names).encode(),
        env=plain_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _sealed(path: Path, first: str) -> AbstractContextManager[Server]:
    settings = {"DOI_PROXY_MODE": "sealed", "DOI_PROXY_STORE_URL": f"sqlite:///{path}", "DOI_PROXY_ACCESS_LOG": "off"}
    return served(proxy_command, environment=settings, path=first)


async def look_up(built: Imported) -> LookUps:
    """Look names up at random, by the store that a proxy uses."""
    chance = random.Random(_SEED)
    keys = [built.names.name(chance.randrange(built.names.records)) for _ in range(_WARM)]
    store = SqliteStore(built.path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
    try:
        await _time(store, keys[:_COLD], lambda: None)
        cold = await _time(store, keys[-_COLD:], lambda: drop_from_cache(built.path))
        await _time(store, keys, lambda: None)
        warm = await _time(store, keys, lambda: None)
    finally:
        await store.close()
    return LookUps(_summary(cold), _summary(warm))


async def _time(store: SqliteStore, keys: Sequence[str], before: Callable[[], None]) -> list[float]:
    taken = []
    for key in keys:
        before()
        began = time.perf_counter()
        found = await store.get(key)
        taken.append((time.perf_counter() - began) * 1e6)
        if found is None:
            raise NotMeasured(f"not measured: the store lost {key}")
    return taken


def _summary(taken: Sequence[float]) -> tuple[float, float]:
    return median(taken), quantiles(taken, n=100)[98]


def drop_from_cache(path: Path) -> None:
    """Drop a file from the system's cache. Needs no privilege; pages that are not yet on the disk stay."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


async def opening(built: Imported) -> float:
    """Seconds to open the store and read one record."""
    taken = []
    for _ in range(_OPENINGS):
        drop_from_cache(built.path)
        began = time.perf_counter()
        store = SqliteStore(built.path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
        await store.get(built.names.name(0))
        taken.append(time.perf_counter() - began)
        await store.close()
    return median(taken)


def _describe(names: RegistryNames) -> str:
    sample = [names.name(number) for number in range(0, names.records, max(1, names.records // 1_000))]
    return (
        f"{mean(map(len, sample)):.0f} B a name, {mean(len(url_of(name).encode()) for name in sample):.0f} B a URL,"
        f" {names.each} names of each stem"
    )
