"""Reads a bundle into the cache. An older record never replaces a newer one."""

from __future__ import annotations

import io
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from msgspec.structs import replace

from doi_proxy.cache.entry import FOREVER, Entry, bound_times
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.bundles import bundle
from doi_proxy.features.bundles.bundle import Refused, read_bundle
from doi_proxy.system.check import Service
from doi_proxy.system.files import STANDARD_INPUT, Gunzip, GzipLimits, open_regular
from doi_proxy.system.progress import Bar
from handle_protocol.referral import ResponseCode

#: Limits of the records, and of the bytes of their values, that wait to be written.
MAX_WAITING: Final = 4_000
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
#: Limit of the refused lines whose reasons are reported. Further lines are only counted.
MAX_NAMED: Final = 100
#: A bundle of names that are alike has up to 55 bytes for each compressed byte.
_GZIP_LIMITS: Final = GzipLimits(ratio=400, free_bytes=64 * 1024 * 1024)
#: Compressed bytes that are read at a time.
_PIECE_BYTES: Final = 65_536
#: Records between two updates of the progress bar.
_STEP: Final = 200

#: The results for a record, in the order of the report.
OUTCOMES: Final = ("new", "kept", "expired", "refused")


@dataclass(frozen=True, slots=True)
class ImportBounds:
    """Limits of the lifetime of imported records, in seconds. A sealed proxy has no upstream, so it keeps them."""

    negative_ttl: float
    ttl_ceiling: float
    grace: float
    sealed: bool


@dataclass(slots=True)
class ImportReport:
    """How many records were imported or left out, the first refused lines, and the state of the checksum."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: list[bundle.Refused] = field(default_factory=list)
    checksum: bundle.Checksum = bundle.Checksum.ABSENT

    def describe_counts(self) -> str:
        """The counts by outcome."""
        return ", ".join(f"{outcome} {self.counts[outcome]}" for outcome in OUTCOMES)


def bound_entry(entry: Entry, bounds: ImportBounds, now: float) -> Entry:
    """Limit the lifetime of a record by the settings of this proxy. `now` is in seconds since the epoch.

    A negative answer has no grace, not even in a sealed proxy.
    """
    if entry.answer.code is not ResponseCode.SUCCESS:
        ends = min(entry.stale_until, now + bounds.negative_ttl)
        return replace(entry, fresh_until=min(entry.fresh_until, ends), stale_until=ends)
    fresh_until = min(entry.fresh_until, now + bounds.ttl_ceiling)
    if bounds.sealed:
        return replace(entry, fresh_until=fresh_until, stale_until=FOREVER)
    ends = max(fresh_until, now) + bounds.grace
    return replace(entry, fresh_until=fresh_until, stale_until=min(entry.stale_until, ends))


async def import_bundle(work: BundleImport, path: str, file: BinaryIO, bar: Bar) -> ImportReport:
    """Import a bundle from an open file. A file whose path ends in `.gz` is compressed. The bar counts bytes.

    Raises StoreError if the store fails.
    """
    position = 0
    size = size_of(path)
    for item in _read_to_the_end(_decompress(path, file)):
        await work.add(item)
        if size and work.report.counts.total() % _STEP == 0:
            before, position = position, file.tell()
            bar.advance(position - before)
    await work.finish()
    return work.report


def size_of(path: str) -> int | None:
    """The length of a file in bytes. None for standard input and devices."""
    return Path(path).stat().st_size if path != STANDARD_INPUT and Path(path).is_file() else None


def open_bundle(path: str) -> AbstractContextManager[BinaryIO]:
    """Open the file of a bundle, or standard input. Raises ConfigurationError if it cannot be read."""
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    try:
        return open_regular(Path(path))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror or error}; the name - reads standard input"
        ) from error


def _decompress(path: str, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_GzipFile(file))) if path.endswith(".gz") else file


class _GzipFile(io.RawIOBase):
    """Reads what a gzip file contains. Raises OSError for damaged data, and past the limits."""

    def __init__(self, file: BinaryIO) -> None:
        gunzip = Gunzip(_GZIP_LIMITS, lambda reason: OSError(f"the {reason}"))
        self._pieces = gunzip.read(iter(lambda: file.read(_PIECE_BYTES), b""))
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer. Returns the number of bytes, 0 at the end."""
        self._rest = self._rest or memoryview(next(self._pieces, b""))
        room = memoryview(buffer)
        count = min(len(room), len(self._rest))
        room[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _read_to_the_end(file: BinaryIO) -> Iterator[bundle.BundleItem]:
    """Read the items of a bundle. The last item is always a BundleEnd, even if the file is damaged."""
    entries = refused = number = 0
    try:
        for item in bundle.read_bundle(file):
            entries += isinstance(item, Entry)
            refused += isinstance(item, bundle.Refused)
            number = item.number if isinstance(item, bundle.Refused) else number + 1
            yield item
    except OSError as error:
        yield bundle.Refused(number + 1, f"the rest of the file cannot be read: {error}")
        yield bundle.BundleEnd(entries + refused + 1, refused + 1, bundle.Checksum.ABSENT)


class BundleImport:
    """Puts the items of bundles into a cache."""

    def __init__(self, cache: TieredStore, bounds: ImportBounds, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._bounds = bounds
        self._clock = clock
        self.report = ImportReport()
        self._waiting = self._waiting_bytes = 0

    async def add(self, item: bundle.BundleItem) -> None:
        """Put a record into the store. Add any other item to the report."""
        if isinstance(item, Entry):
            self.report.counts[await self._put(item)] += 1
        elif isinstance(item, bundle.Refused):
            self.report.counts["refused"] += 1
            if len(self.report.refused) < MAX_NAMED:
                self.report.refused.append(item)
        else:
            self.report.checksum = item.checksum

    async def finish(self) -> None:
        """Return when everything is durable. Raises StoreError."""
        await self._cache.flush()
        await self._cache.check()
        self._waiting = self._waiting_bytes = 0

    async def _put(self, original: Entry) -> str:
        now = self._clock()
        # A date in the future would outlast every later answer.
        believed = bound_times(original, now, self._bounds.ttl_ceiling)
        entry = bound_entry(believed, self._bounds, now)
        if not entry.is_usable(now):
            return "expired"
        # Only an answer of the upstream may replace a usable record by "not found".
        if entry.answer.code is not ResponseCode.SUCCESS and await self._has_record(entry.key, now):
            return "kept"
        if not await self._cache.put_newer(entry):
            return "kept"
        self._waiting += 1
        self._waiting_bytes += len(entry.answer.values)
        if self._waiting >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            await self.finish()
        return "new"

    async def _has_record(self, key: str, now: float) -> bool:
        """Whether the store has a usable record."""
        known = await self._cache.get(key, newest=True)
        return known is not None and known.is_usable(now) and known.answer.code is ResponseCode.SUCCESS


log = logging.getLogger(__name__)

#: Refused lines that are logged. Further ones are only counted.
MAX_NAMED_IN_SEED: Final = 10
#: Records that are put before the store writes them.
_BATCH: Final = 1_000


class Seed(Service):
    """Puts the records of a bundle into the cache at the start, except names that the cache already has.

    A seed record is expired from the start. It is served only while the upstream cannot be reached. A "not found" is
    served until its own end.
    """

    def __init__(
        self, path: Path, cache: TieredStore, clock: Callable[[], float], grace: float, negative_ttl: float
    ) -> None:
        """For `grace` seconds, a record can be served, and for `negative_ttl` seconds at most, a "not found"."""
        self._path = path
        self._cache = cache
        self._clock = clock
        self._grace = grace
        self._negative_ttl = negative_ttl

    async def start(self) -> None:
        """Load the records."""
        loaded = known = refused = 0
        with open_regular(self._path) as file:
            # Of a record without times, it is not known whether an upstream ever confirmed it.
            for item in read_bundle(file):
                now = self._clock()
                if isinstance(item, Refused):
                    refused += 1
                    if refused <= MAX_NAMED_IN_SEED:
                        log.warning("%s, line %s is left out: %s", self._path, item.number, item.reason)
                elif isinstance(item, Entry):
                    entry = await self._cache.get(item.key, newest=True)
                    if entry is not None and entry.is_usable(now):
                        known += 1
                        continue
                    await self._cache.put(self._expire(item, now))
                    loaded += 1
                    if loaded % _BATCH == 0:
                        # A store has a bounded queue of writes, and refuses those that come faster than it writes.
                        await self._cache.flush()
        if refused > MAX_NAMED_IN_SEED:
            log.warning("%s: %s lines are left out", self._path, refused)
        log.info("%s: %s records loaded, %s were in the cache already", self._path, loaded, known)

    def _expire(self, entry: Entry, now: float) -> Entry:
        fetched_at, ends = min(entry.fetched_at, now), now + self._grace
        if not entry.is_negative:
            return replace(entry, fetched_at=fetched_at, fresh_until=now, stale_until=ends)
        fresh_until = min(entry.fresh_until, now + self._negative_ttl)
        # Of what is missing, only a prefix is kept for longer than it is served; see TtlPolicy.
        stale_until = fresh_until if "/" in entry.key else ends
        return replace(entry, fetched_at=fetched_at, fresh_until=fresh_until, stale_until=stale_until)
