"""`doi-proxy cache import`: a bundle into the store, never an older record over a newer one."""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final, cast

from msgspec.structs import replace

from app.bulk.lists import STANDARD_INPUT
from app.bulk.progress import progress
from app.cache.bundle import BundleEnd, Checksum, Refused, read_bundle
from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.cache.wire import FOREVER
from app.cli.cache_store import check, opened
from app.errors import ConfigurationError
from app.handle.answer import ResponseCode
from app.settings import Settings

#: Records, and bytes of values, that wait to be written at most.
MOST_WAITING: Final = 4_000
MOST_WAITING_BYTES: Final = 8 * 1024 * 1024
#: Refused lines that are named; the others are counted.
MOST_NAMED: Final = 100
#: Records between two looks at how far the file is read.
_LOOK_EVERY: Final = 200

#: What becomes of a record, in the order in which it is told.
OUTCOMES: Final = ("new", "kept", "expired", "refused")


def adopted(entry: Entry, settings: Settings, now: float) -> Entry:
    """A record of a bundle within this proxy's own bounds; `now` in seconds since the epoch.

    Fresh for no longer than this proxy keeps its own, usable for no longer than its grace; in a sealed proxy, which
    has nobody to ask, usable for ever. "Not found" has no grace anywhere.
    """
    if entry.answer.code is not ResponseCode.SUCCESS:
        ends = min(entry.stale_until, now + settings.cache_negative_ttl)
        return replace(entry, fresh_until=min(entry.fresh_until, ends), stale_until=ends)
    fresh_until = min(entry.fresh_until, now + settings.cache_ttl_ceiling)
    if settings.mode == "sealed":
        return replace(entry, fresh_until=fresh_until, stale_until=FOREVER)
    ends = max(fresh_until, now) + settings.cache_grace
    return replace(entry, fresh_until=fresh_until, stale_until=min(entry.stale_until, ends))


async def import_bundle(settings: Settings, path: str, *, accept_no_checksum: bool) -> int:
    """Import a bundle, `-` for standard input. Exit status 0, or 1 for refused lines and checksums not right."""
    size = _size(path)
    with _opened(path) as file:
        async with opened(settings) as cache:
            importing, position = _Importing(settings, cache), 0
            with progress("importing", size, in_bytes=True) as bar:
                for item in _read(_unpacked(path, file)):
                    await importing.take(item)
                    if size and importing.lines % _LOOK_EVERY == 0:
                        before, position = position, file.tell()
                        bar.advance(position - before)
    return importing.report(accept_no_checksum)


def _size(path: str) -> int | None:
    """The length of a file in bytes, None for what has none."""
    return Path(path).stat().st_size if path != STANDARD_INPUT and Path(path).is_file() else None


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpacked(path: str, file: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.endswith(".gz") else file


def _read(file: BinaryIO) -> Iterator[Entry | Refused | BundleEnd]:
    """The bundle, and as its last item how it ended, also where the file is damaged below its lines."""
    entries = refused = number = 0
    try:
        for item in read_bundle(file):
            entries += isinstance(item, Entry)
            refused += isinstance(item, Refused)
            number = item.number if isinstance(item, Refused) else number + 1
            yield item
    except (OSError, EOFError, zlib.error) as error:
        yield Refused(number + 1, f"the file cannot be read on from here: {error}")
        yield BundleEnd(entries + refused + 1, refused + 1, Checksum.ABSENT)


class _Importing:
    def __init__(self, settings: Settings, cache: TieredStore) -> None:
        self._settings = settings
        self._cache = cache
        self._counts: Counter[str] = Counter()
        self._named: list[Refused] = []
        self._checksum = Checksum.ABSENT
        self._waiting = self._waiting_bytes = 0

    @property
    def lines(self) -> int:
        """Lines read so far that were records, or should have been."""
        return self._counts.total()

    async def take(self, item: Entry | Refused | BundleEnd) -> None:
        """Put a record into the store, or note what else there is."""
        if isinstance(item, Entry):
            self._counts[await self._put(item)] += 1
        elif isinstance(item, Refused):
            self._counts["refused"] += 1
            if len(self._named) < MOST_NAMED:
                self._named.append(item)
        else:
            self._checksum = item.checksum

    async def _put(self, given: Entry) -> str:
        now = time.time()
        entry = adopted(given, self._settings, now)
        if not entry.is_usable(now):
            return "expired"
        if entry.answer.code is not ResponseCode.SUCCESS and await self._knows_record(entry.key, now):
            return "kept"
        if not await self._cache.put_newer(entry):
            return "kept"
        self._waiting += 1
        self._waiting_bytes += len(entry.answer.values)
        if self._waiting >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            await self._cache.flush()
            await check(self._cache)
            self._waiting = self._waiting_bytes = 0
        return "new"

    async def _knows_record(self, key: str, now: float) -> bool:
        """Whether "not found" would take a record away: that takes an answer of today, confirmed by the upstream."""
        known = await self._cache.reread(key)
        return known is not None and known.is_usable(now) and known.answer.code is ResponseCode.SUCCESS

    def report(self, accept_no_checksum: bool) -> int:
        """Tell what became of the lines; returns the exit status."""
        for refused in self._named:
            print(f"line {refused.number} is refused: {refused.reason}", file=sys.stderr)
        if self._counts["refused"] > len(self._named):
            print(f"{self._counts['refused'] - len(self._named)} more lines are refused", file=sys.stderr)
        absent = self._checksum is Checksum.ABSENT and not accept_no_checksum
        if absent:
            print("no checksum line ends the bundle: it may be cut off (--no-checksum accepts that)", file=sys.stderr)
        if self._checksum is Checksum.WRONG:
            print("the checksum is wrong: lines were changed, added or lost on the way", file=sys.stderr)
        counts = ", ".join(f"{outcome} {self._counts[outcome]}" for outcome in OUTCOMES)
        print(f"{counts}; checksum {self._checksum.value}")
        return 1 if self._counts["refused"] or absent or self._checksum is Checksum.WRONG else 0
