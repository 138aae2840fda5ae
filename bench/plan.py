"""The plan of a run: durations, names, cores and stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import Cores
from bench.names import HOT
from bench.records import entry_of
from doi_proxy.assembly.features import find_records
from doi_proxy.cache.entry import Entry
from doi_proxy.features.sqlite.store import SqliteStore

#: Entries between two flushes of the store: fewer than its queue of writes can have.
_FLUSH_EVERY: Final = 4_096
#: The store of a million records. It takes a minute to build, so the next run uses it again.
LARGE: Final = "million.sqlite3"
#: The exponent that public logs of downloads by DOI have: 0.82 to 0.90 (docs/scale.md).
ZIPF_EXPONENT: Final = 0.85
#: With seven rounds, a whole run takes half an hour; a median of fewer changes more from run to run.
ROUNDS: Final = 7
_FEW_ROUNDS: Final = 3
#: So large that no store evicts anything during a measurement.
STORE_BYTES: Final = 20 * 2**30


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` is the duration of one load of one contestant in one round. `names` does not include the hot name.

    Many short rounds are more exact than a few long ones: other work on the machine changes within seconds, and a
    ratio is taken within a round.
    """

    seconds: float
    rounds: int
    names: tuple[str, ...]
    names_from: str
    folder: Path
    cores: Cores
    #: Lines of the lists of names.
    batch_sizes: tuple[int, ...]
    #: The popularity of names in the simulation of the DOI system. The other loads have an exponent of 1.
    zipf_exponent: float = ZIPF_EXPONENT
    #: Records of the large store.
    records: int = 1_000_000
    #: Registry names of the spike.
    spike_records: int = 1_000_000
    #: The rows of the part service; none for all.
    rows: tuple[str, ...] = ()

    @property
    def few_rounds(self) -> int:
        """Rounds of what takes much longer than a load, such as a failure."""
        return min(self.rounds, _FEW_ROUNDS)


def build_store(path: Path, entries: Iterable[Entry]) -> Path:
    """Build a SQLite store with these entries, by the store's own writer."""
    for old in path.parent.glob(path.name + "*"):
        old.unlink()
    asyncio.run(_fill(path, entries))
    return path


def store_of(path: Path, names: Iterable[str]) -> Path:
    """Build a SQLite store with the hot name and these names, all fresh."""
    now = time.time()
    return build_store(path, (entry_of(name, now) for name in (HOT, *names)))


async def _fill(path: Path, entries: Iterable[Entry]) -> None:
    store = SqliteStore(path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
    try:
        for number, entry in enumerate(entries, 1):
            await store.put(entry)
            if number % _FLUSH_EVERY == 0:
                await store.flush()
    finally:
        await store.close()


def entries_in(path: Path) -> int:
    """The number of entries in a SQLite store."""
    return asyncio.run(_entries(path))


async def _entries(path: Path) -> int:
    store = SqliteStore(path, clock=time.time, max_bytes=STORE_BYTES, records=find_records())
    try:
        return (await store.stats()).entries
    finally:
        await store.close()
