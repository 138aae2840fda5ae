"""How often the right name is found after one slip, in a store of any size: `python -m bench.near_names`.

`tables NAMES RECORDS FOLDER` writes tables for `doi-proxy cache import`: the names of the file NAMES, and names with
the numbers around theirs. `search NAMES STORE` searches the SQLite file STORE for names of NAMES with a slip each, as
a not-found page does. Times are of the processor.
"""

from __future__ import annotations

import asyncio
import csv
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Final, cast

import psutil

from bench.names import read_names
from bench.plan import STORE_BYTES
from bench.registry_names import url_of
from doi_names.name import HandleName, fold
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.features.suggestions.nearest import NearestNames
from doi_proxy.resolver.resolver import Resolver

_FILE_ROWS: Final = 250_000
_MAX_NAMES: Final = 1_000_000
_SLIPS: Final = 1_437
_SEED: Final = 13
_TIMEOUT: Final = 60.0
_NUMBER: Final = re.compile(r"(.*/.*?)([0-9]{1,9})([^0-9]*)$")
_LOOK_ALIKES: Final = {"0": "O", "O": "0", "1": "L", "L": "1", "5": "S", "S": "5", "I": "1", "8": "B", "B": "8"}


class DenseNames:
    """Names with running numbers: those around the number of each given name, as wide as it is."""

    def __init__(self, names: Sequence[str], records: int) -> None:
        self._fixed: list[str] = []
        self._numbers: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for name in names:
            found = _NUMBER.match(key := fold(name))
            if found is None:
                self._fixed.append(key)
            else:
                stem, digits, end = found.groups()
                self._numbers[stem, end, len(digits)].append(int(digits))
        low, high = 0, records
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._count(middle) >= records else (middle + 1, high)
        self._reach = low
        self.records = self._count(low)

    def _count(self, reach: int) -> int:
        return len(self._fixed) + sum(
            end - start
            for (_, _, width), numbers in self._numbers.items()
            for start, end in _ranges(numbers, width, reach)
        )

    def __iter__(self) -> Iterator[str]:
        yield from self._fixed
        for (stem, end, width), numbers in self._numbers.items():
            for first, last in _ranges(numbers, width, self._reach):
                yield from (f"{stem}{number:0{width}}{end}" for number in range(first, last))


def _ranges(numbers: Sequence[int], width: int, reach: int) -> Iterator[tuple[int, int]]:
    """The numbers at most `reach` away from one of these, as ranges that do not meet."""
    last = 0
    for number in sorted(numbers):
        first, end = max(last, number - reach), min(10**width, number + reach + 1)
        if first < end:
            yield first, end
            last = end


def make_slip(key: str, chance: random.Random) -> str:
    """The key with one slip in its suffix: a character dropped, doubled, swapped with the next, or a look-alike."""
    start = key.index("/") + 1
    while True:
        at, kind = chance.randrange(start, len(key)), chance.randrange(4)
        slip = (
            key[:at] + key[at + 1 :],
            key[: at + 1] + key[at:],
            key[:at] + key[at + 1 : at + 2] + key[at] + key[at + 2 :],
            key[:at] + _LOOK_ALIKES.get(key[at], key[at]) + key[at + 1 :],
        )[kind]
        if slip != key and len(slip) > start:
            return slip


def judge(right: str, found: Sequence[str]) -> str:
    """What a page with these names shows to a reader who meant the right one."""
    if right in found:
        if len(found) == 1:
            return "the right name alone"
        return "the right name first of several" if found[0] == right else "the right name after others"
    return "other names only" if found else "nothing"


async def measure(path: Path, keys: Sequence[str]) -> list[str]:
    """Search for each key with a slip, as a not-found page does. Returns the results, a line each."""
    store = SqliteStore(path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
    cache = TieredStore(MemoryStore(2**20, clock=time.time), store, clock=time.time, ceiling=86_400.0)
    chance, results = random.Random(_SEED), Counter[str]()
    taken: list[float] = []
    turns: list[float] = []
    try:
        for key in keys:
            while await store.get(slip := make_slip(key, chance)) is not None:
                results["slips that are registered names (another was made)"] += 1
            found = await _search(cache, slip, taken, turns)
            results[judge(key, found)] += 1
    finally:
        await store.close()
    lines = [f"{count:6} {result}" for result, count in results.most_common()]
    return [*lines, _describe("search", taken), _describe("of which in the event loop", turns)]


async def _search(cache: TieredStore, slip: str, taken: list[float], turns: list[float]) -> list[str]:
    # Of a resolver, the search uses the local records alone.
    resolver = cast("Resolver", SimpleNamespace(local_records=None))
    near = NearestNames(resolver, cache, time.time)
    name = HandleName(slip)
    began, turn = time.process_time(), time.thread_time()
    await near.search(name, _TIMEOUT)
    taken.append((time.process_time() - began) * 1000)
    turns.append((time.thread_time() - turn) * 1000)
    return [found.key for found in near.find(name).one_edit]


def _describe(what: str, taken: Sequence[float]) -> str:
    return f"{what}: median {median(taken):.2f} ms, p99 {quantiles(taken, n=100)[98]:.2f} ms, worst {max(taken):.2f} ms"


def write_tables(folder: Path, names: DenseNames) -> None:
    """Write the records of all names."""
    folder.mkdir(parents=True)
    keys = iter(names)
    for number in range(-(-names.records // _FILE_ROWS)):
        with (folder / f"{number:04}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("doi", "url", "agency", "date"))
            rows = islice(keys, _FILE_ROWS)
            writer.writerows((key, url_of(key), "Crossref", "2026-01-01T00:00:00Z") for key in rows)


def main() -> None:
    """Write the tables, or print what the searches find."""
    command, names = sys.argv[1], read_names(Path(sys.argv[2]), _MAX_NAMES)
    if command == "tables":
        write_tables(Path(sys.argv[4]), DenseNames(names, int(sys.argv[3])))
        return
    keys = [fold(name) for name in random.Random(_SEED).sample(names, _SLIPS)]
    print(*asyncio.run(measure(Path(sys.argv[3]), keys)), sep="\n")
    print(f"memory of the process: {psutil.Process().memory_info().rss / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
