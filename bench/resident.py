"""What memory.py measures in a process of its own: `python -m bench.resident fill SIZE | hits`; prints JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from statistics import median
from typing import Any, Final

import psutil

from app.cache.memory import MemoryStore
from bench.in_process import InProcess, in_process
from bench.names import path_of, synthetic
from bench.records import entry_of, values_sized

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
    # Key and values are made here, as they are when an answer arrives.
    store.keep(entry_of(name + "", now, values=values_sized(name, size)))


async def hits() -> dict[str, list[float]]:
    """Seconds of a hit and of a lookup, among few names and then among many."""
    found: dict[str, list[float]] = {"hit": [], "lookup": []}
    async with in_process(express_lane=False) as one:
        names = synthetic(_MANY)
        for count in (_FEW, _MANY):
            _keep(one, names[:count])
            gc.collect()
            gc.freeze()
            drawn = random.Random(_SEED).choices(names[:count], k=_HITS)
            found["hit"].append(await _median(lambda drawn=drawn: _ask(one, drawn)))  # type: ignore[misc]
            found["lookup"].append(await _median(lambda drawn=drawn: _look(one, drawn)))  # type: ignore[misc]
    return found


def _keep(one: InProcess, names: Sequence[str]) -> None:
    now = time.time()
    for name in names:
        one.parts.cache.memory.keep(entry_of(name, now, values=values_sized(name, _SIZE)))


async def _ask(one: InProcess, names: Sequence[str]) -> float:
    paths = [path_of(name) for name in names]
    began = time.perf_counter()
    for path in paths:
        await one.ask(path)
    return (time.perf_counter() - began) / len(paths)


async def _look(one: InProcess, names: Sequence[str]) -> float:
    keys = [name.upper() for name in names]
    peek = one.parts.cache.memory.peek
    began = time.perf_counter()
    for key in keys:
        peek(key)
    return (time.perf_counter() - began) / len(keys)


async def _median(work: Callable[[], Coroutine[Any, Any, float]]) -> float:
    return median([await work() for _ in range(_STRETCHES)])


if __name__ == "__main__":
    print(json.dumps(fill(int(sys.argv[2])) if sys.argv[1] == "fill" else asyncio.run(hits())))
