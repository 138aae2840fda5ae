"""The pages of a store's changes, for children that follow it: each page is a delta of limited size."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from app.cache.bundle import BundleWriter
from app.cache.delta import Cursor, DeltaEnd, end_line, parse_cursor, start_line
from app.errors import DoiProxyError, InvalidParameter

#: Level of gzip: a page of 2,000 records takes 15 ms, outside the event loop.
_COMPRESSION: Final = 4


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A delta, compressed by gzip, and the number of its lines."""

    body: bytes
    lines: int
    more: bool


class ChangeFeed:
    """Makes the pages. A store that is not SQLite has no log of changes."""

    def __init__(
        self, path: Path | None, clock: Callable[[], float], *, max_open: int, record: Callable[[str, int], None]
    ) -> None:
        """At most `max_open` pages are made at a time.

        `record` counts the result of a request ("sent", "busy" or "refused") and the bytes of its page.
        """
        self._path = path
        self._clock = clock
        self._max_open = max_open
        self._record = record
        self._open = 0

    async def read(self, cursor: str) -> FeedPage | None:
        """The page after a cursor, or the first of everything if it is empty. None if too many are under way.

        Raises InvalidParameter, ChangesGone and StoreError.
        """
        try:
            page = await self._read(cursor)
        except DoiProxyError:
            self._record("refused", 0)
            raise
        if page is None:
            self._record("busy", 0)
        else:
            self._record("sent", len(page.body))
        return page

    async def _read(self, cursor: str) -> FeedPage | None:
        if self._path is None:
            raise InvalidParameter(
                "This proxy's store keeps no log of changes: only sqlite:///path does. Let both proxies use one Valkey"
                " server, or move records by cache export and cache import."
            )
        place = parse_cursor(cursor) if cursor else None
        if self._open >= self._max_open:
            return None
        self._open += 1
        try:
            return await asyncio.to_thread(_make_page, self._path, place, cursor, self._clock())
        finally:
            self._open -= 1


def _make_page(path: Path, place: Cursor | None, since: str, now: float) -> FeedPage:
    # Imported only if needed: a proxy with another store does not need this library.
    from app.cache.sqlite.change_pages import read_changes  # noqa: PLC0415

    page = read_changes(path, place, now)
    file = BytesIO()
    writer = BundleWriter(file)
    writer.add_line(start_line(since))
    for line in page.lines:
        writer.add_line(line)
    writer.add_line(end_line(DeltaEnd(str(page.cursor), page.more)))
    writer.finish()
    return FeedPage(gzip.compress(file.getvalue(), _COMPRESSION, mtime=0), len(page.lines), page.more)
