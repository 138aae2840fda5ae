"""The part of memory.py that needs a separate process: `python -m bench.resident fill SIZE | hits` prints JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

import psutil

from bench.in_process import InProcess, in_process
from bench.names import path_of, synthetic
from bench.records import entry_of, values_sized
from doi_proxy.cache.memory import MemoryStore

_RECORDS: Final = 100_000
_FEW: Final = 1_000
_MANY: Final = 1_000_000
_SIZE: Final = 300
_HITS: Final = 20_000
_STRETCHES: Final = 7
_SEED: Final = 7


def fill(size: int) -> dict[str, float]:
    """Bytes of resident memory that a record takes in the memory tier."""
    process = psutil.Process()
    store = MemoryStore(8 * 2**30, clock=time.time)
    now = time.time()
    names = iter(synthetic(_RECORDS + 1_000))
    for _ in range(1_000):  # what the allocator takes at first is not the records'
        _put(store, next(names), now, size)
    gc.collect()
    before = process.memory_info().rss
    for name in names:
        _put(store, name, now, size)
    return {"bytes": (process.memory_info().rss - before) / _RECORDS}


def _put(store: MemoryStore, name: str, now: float, size: int) -> None:
    # Key and values are new objects, as in a real answer.
    store.keep(entry_of(name + "", now, values=values_sized(name, size)))


async def hits() -> dict[str, list[float]]:
    """The seconds of a hit and of a lookup, among few names and among many in turn."""
    names = synthetic(_MANY)
    counts = (_FEW, _MANY)
    taken: dict[str, dict[int, list[float]]] = {what: {count: [] for count in counts} for what in ("hit", "lookup")}
    async with in_process(express_lane=False) as few, in_process(express_lane=False) as many:
        applications = dict(zip(counts, (few, many), strict=True))
        for count, one in applications.items():
            _keep(one, names[:count])
        gc.collect()
        gc.freeze()
        chance = random.Random(_SEED)
        for _ in range(_STRETCHES):
            for count, one in applications.items():
                drawn = chance.choices(names[:count], k=_HITS)
                taken["hit"][count].append(await _ask(one, drawn))
                taken["lookup"][count].append(_look(one, drawn))
    return {what: [median(seconds) for seconds in found.values()] for what, found in taken.items()}


def _keep(one: InProcess, names: Sequence[str]) -> None:
    now = time.time()
    for name in names:
        one.cache.memory.keep(entry_of(name, now, values=values_sized(name, _SIZE)))


async def _ask(one: InProcess, names: Sequence[str]) -> float:
    paths = [path_of(name) for name in names]
    began = time.perf_counter()
    for path in paths:
        await one.ask(path)
    return (time.perf_counter() - began) / len(paths)


def _look(one: InProcess, names: Sequence[str]) -> float:
    keys = [name.upper() for name in names]
    peek = one.cache.memory.peek
    began = time.perf_counter()
    for key in keys:
        peek(key)
    return (time.perf_counter() - began) / len(keys)


if __name__ == "__main__":
    print(json.dumps(fill(int(sys.argv[2])) if sys.argv[1] == "fill" else asyncio.run(hits())))
