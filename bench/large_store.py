"""A large store: import, size, look-ups, and opening, of registry records with names of real shapes."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Final

from app.cache.compression import compress
from app.cache.registry_wire import RegistryRow
from app.cache.sqlite.registry import MAX_BATCH, ImportPart, RegistryTable
from app.cache.sqlite.store import SqliteStore
from bench.findings import Claim, Section, Table
from bench.plan import STORE_BYTES, Plan
from bench.registry_names import RegistryNames, url_of
from bench.tools import NotMeasured

#: The store that the large one is compared with.
SMALL: Final = 1_000_000
#: Look-ups of each measurement, and those for which the file is dropped from the system's cache before each.
_WARM: Final = 20_000
_COLD: Final = 400
_OPENINGS: Final = 5
#: Room that must be left on the disk, in bytes.
_SPARE: Final = 10 * 2**30
_BYTES_A_RECORD: Final = 160
_SEED: Final = 13

#: In the process that makes the records: the names. A task would be large with them.
_names_of_worker: list[RegistryNames] = []


@dataclass(frozen=True, slots=True)
class Imported:
    """A store that was built: seconds, records a second of each tenth, bytes of the file, peak memory."""

    path: Path
    names: RegistryNames
    seconds: float
    rates: tuple[float, ...]

    @property
    def bytes(self) -> int:
        """The length of the file."""
        return self.path.stat().st_size


@dataclass(frozen=True, slots=True)
class LookUps:
    """Microseconds of look-ups: the median and the 99th percentile, from the disk and from the system's cache."""

    cold: tuple[float, float]
    warm: tuple[float, float]


def large_store(plan: Plan) -> tuple[Section, ...]:
    """Build both stores and measure them in turn. Raises NotMeasured if the disk has no room."""
    free = shutil.disk_usage(plan.folder).free
    if free < plan.records * _BYTES_A_RECORD + _SPARE:
        raise NotMeasured(f"not measured: the disk has {free / 2**30:.0f} GiB left, too little for this many records")
    stores = [build(plan, plan.folder / f"registry-{count}.sqlite3", count) for count in (SMALL, plan.records)]
    found = [asyncio.run(look_up(store)) for store in stores]
    openings = [asyncio.run(opening(store)) for store in stores]
    small, large = found
    sizes = f"{plan.records:,} records to {SMALL:,}"
    rows = tuple(
        (
            f"{store.names.records:,} records",
            f"{store.names.records / store.seconds:,.0f}",
            f"{store.rates[-1]:,.0f}",
            f"{store.bytes / store.names.records:.1f} B",
            f"{store.bytes / 2**20:,.0f} MiB",
            f"{opened * 1000:.1f} ms",
        )
        for store, opened in zip(stores, openings, strict=True)
    )
    times = tuple(
        (
            f"{store.names.records:,} records",
            *(f"{value:.0f} µs" for value in (*one.cold, *one.warm)),
        )
        for store, one in zip(stores, found, strict=True)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (
        Section(
            title="Large store",
            method=(
                f"Registry records of generated names and URLs (mean: {_describe(stores[1].names)}), packed by one"
                " process and written by another in the order of their keys. Look-ups are of names at random by the"
                f" store's own `get`: {_COLD} with the file dropped from the system's cache before each, and {_WARM:,}"
                f" from the cache. Peak memory of the process that writes: {peak / 2**20:.0f} MiB."
            ),
            tables=(
                Table(("Import", "records/s", "in the last tenth", "a record", "file", "opening"), rows),
                Table(("Look-up", "cold, median", "cold, p99", "cached, median", "cached, p99"), times),
            ),
            claims=(
                Claim("bytes a record", stores[1].bytes / plan.records, "<=", _BYTES_A_RECORD, "B"),
                Claim("records a second in the last tenth of the import", stores[1].rates[-1], ">=", 60_000),
                Claim(f"cold look-up, {sizes}", large.cold[0] / small.cold[0], "<=", 1.5),
                Claim(f"cached look-up, {sizes}", large.warm[0] / small.warm[0], "<=", 1.5),
                Claim("opening", openings[1], "<=", 1.0, "s"),
            ),
        ),
    )


def build(plan: Plan, path: Path, records: int) -> Imported:
    """Build a store with so many records. One process makes the records while this one writes them."""
    for old in path.parent.glob(path.name + "*"):
        old.unlink()
    names = RegistryNames(plan.names, records)
    rates: list[float] = []
    began, written = time.perf_counter(), 0
    step_began, step = began, max(1, records // 10)
    with RegistryTable(path, clock=time.time) as table:
        for batch in _batches(names):
            table.write(batch, finishes=ImportPart("bench", "last", batch[-1][0]))
            written += len(batch)
            if written >= step * (len(rates) + 1):
                now = time.perf_counter()
                rates.append(step / (now - step_began))
                step_began = now
        counted = table.count()
    seconds = time.perf_counter() - began
    if counted != records:
        raise NotMeasured(f"not measured: {counted:,} of {records:,} records arrived in the store")
    return Imported(path, names, seconds, tuple(rates))


def _batches(names: RegistryNames) -> Iterator[list[RegistryRow]]:
    """The records in batches, made by another process, a few batches ahead."""
    starts = iter(range(0, names.records, MAX_BATCH))
    with ProcessPoolExecutor(1, initializer=_names_of_worker.append, initargs=(names,)) as pool:
        waiting = [pool.submit(_make, start) for start in islice(starts, 4)]
        while waiting:
            batch = waiting.pop(0).result()
            waiting.extend(pool.submit(_make, start) for start in islice(starts, 1))
            yield batch


def _make(start: int) -> list[RegistryRow]:
    return _names_of_worker[-1].rows(start, start + MAX_BATCH)


async def look_up(built: Imported) -> LookUps:
    """Look names up at random, by the store that a proxy uses."""
    chance = random.Random(_SEED)
    keys = [built.names.name(chance.randrange(built.names.records)) for _ in range(_WARM)]
    store = SqliteStore(built.path, clock=time.time, max_bytes=STORE_BYTES)
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
        store = SqliteStore(built.path, clock=time.time, max_bytes=STORE_BYTES)
        await store.get(built.names.name(0))
        taken.append(time.perf_counter() - began)
        await store.close()
    return median(taken)


def _describe(names: RegistryNames) -> str:
    sample = [names.name(number) for number in range(0, names.records, max(1, names.records // 1_000))]
    urls = [url_of(name).encode() for name in sample]
    return (
        f"{mean(map(len, sample)):.0f} B a name, {mean(map(len, urls)):.0f} B a URL, "
        f"{mean(len(compress(url)) for url in urls):.0f} B compressed"
    )
