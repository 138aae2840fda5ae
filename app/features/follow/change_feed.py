"""The pages of a store's changes, for its replicas: each page is a delta of limited size."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from app.errors import DoiProxyError, InvalidParameter
from app.features.bundles.delta import Cursor, parse_cursor

#: Pages that one process makes at a time. Each needs a thread, and the disk of the store.
MAX_OPEN_PAGES: Final = 2
#: Limits of the full pages that are kept for further replicas: their bytes, and their age in seconds.
_KEPT_BYTES: Final = 8 * 1024 * 1024
_KEPT_SECONDS: Final = 60.0
#: Level of gzip: a page of 2,000 records takes 15 ms, outside the event loop.
_COMPRESSION: Final = 4


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A delta, compressed by gzip, and the number of its changes."""

    body: bytes
    lines: int
    more: bool


class _FullPages:
    """The pages that other pages follow. Many replicas of one primary request the same ones.

    An earlier state of such a page does no harm: what changed since is in the log, and the last page has it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pages: dict[str, tuple[float, FeedPage]] = {}
        self._bytes = 0

    def find(self, cursor: str) -> FeedPage | None:
        """The page after a cursor, if it is not too old."""
        at, page = self._pages.get(cursor, (0.0, None))
        # A page from the future was made before the clock was set back.
        return page if abs(self._clock() - at) <= _KEPT_SECONDS else None

    def add(self, cursor: str, page: FeedPage) -> None:
        """Keep a page, and drop the oldest ones over the limit. The last page is never kept: it must be new."""
        if not page.more:
            return
        _, before = self._pages.pop(cursor, (0.0, None))
        self._pages[cursor] = self._clock(), page
        self._bytes += len(page.body) - (0 if before is None else len(before.body))
        while self._bytes > _KEPT_BYTES:
            _, oldest = self._pages.pop(next(iter(self._pages)))
            self._bytes -= len(oldest.body)


class ChangeFeed:
    """Makes the pages. A store that is not SQLite has no log of changes."""

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float],
        *,
        record: Callable[[str, int], None],
        max_open: int = MAX_OPEN_PAGES,
    ) -> None:
        """At most `max_open` pages are made at a time.

        `record` counts the result of a request ("sent", "busy" or "refused") and the bytes of its page.
        """
        self._path = path
        self._clock = clock
        self._max_open = max_open
        self._record = record
        self._open = 0
        self._full = _FullPages(clock)

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
        if (page := self._full.find(cursor)) is not None:
            return page
        if self._open >= self._max_open:
            return None
        self._open += 1
        try:
            page = await asyncio.to_thread(_make_page, self._path, place, cursor, self._clock)
        finally:
            self._open -= 1
        self._full.add(cursor, page)
        return page


def _make_page(path: Path, place: Cursor | None, since: str, clock: Callable[[], float]) -> FeedPage:
    # Imported only if needed: a proxy with another store does not need this library.
    from app.features.follow.sqlite_change_pages import write_delta  # noqa: PLC0415

    file = BytesIO()
    changes, end = write_delta(path, place, since, file, clock, whole=False)
    return FeedPage(gzip.compress(file.getvalue(), _COMPRESSION, mtime=0), changes, end.more)
