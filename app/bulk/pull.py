"""Follows a parent: pulls its changes page by page, checks each page, and then applies it.

A page is applied only if its checksum is right and it continues where the last one ended. The cursor is saved after the
page is durable, so a pull that was killed applies at most one page again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from app.bulk.import_bundle import BundleImport
from app.cache.bundle import BundleEnd, BundleItem, Checksum, Refused, read_bundle
from app.cache.delta import DeltaEnd, DeltaStart
from app.errors import ChangesGone, DoiProxyError

#: Seconds to wait before the same page is fetched again. After the last one the pull ends.
WAITS: Final = (1.0, 2.0, 4.0, 8.0)
#: Limit of lines in a page. A parent sends at most 2,000 changes and a few lines about the page.
MAX_PAGE_LINES: Final = 10_000


class PullError(DoiProxyError):
    """A page of the parent did not arrive, or is not right. Nothing of it was applied."""


@dataclass(slots=True)
class PullReport:
    """What a pull did: pages, bytes on the wire, repeated fetches, whether it began again, and why it ended early."""

    pages: int = 0
    bytes: int = 0
    repeats: int = 0
    began_again: bool = False
    is_complete: bool = False
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes of a page, and how many they were on the wire."""

    content: bytes
    length: int


class Pull:
    """One pull, from a cursor to the end of the parent's changes."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Body]],
        work: BundleImport,
        save: Callable[[str], None],
        *,
        sleep: Callable[[float], Awaitable[None]],
        max_bytes: int,
    ) -> None:
        """`fetch` gets a cursor and raises PullError or ChangesGone. `save` gets the cursor of a durable page.

        The pull ends after `max_bytes` on the wire. The next one continues.
        """
        self._fetch = fetch
        self._work = work
        self._save = save
        self._sleep = sleep
        self._max_bytes = max_bytes
        self.report = PullReport()

    async def run(self, cursor: str) -> PullReport:
        """Pull until the parent has no more. Raises StoreError, and the errors that a repetition does not mend."""
        report = self.report
        while not report.is_complete and report.failure is None:
            if report.bytes >= self._max_bytes:
                report.failure = f"the limit of {self._max_bytes} bytes is reached; run the command again to continue"
                break
            try:
                items, end = await self._fetch_page(cursor)
            except ChangesGone:
                if not cursor or report.began_again:
                    raise
                # What the log has forgotten is known only from everything.
                report.began_again, cursor = True, ""
                continue
            except PullError as error:
                report.failure = error.message
                break
            for item in items:
                await self._work.add(item)
            await self._work.finish()
            self._save(end.next)
            cursor = end.next
            report.pages += 1
            report.is_complete = not end.more
        return report

    async def _fetch_page(self, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
        for wait in WAITS:
            try:
                return await self._fetch_once(cursor)
            except PullError:
                self.report.repeats += 1
                await self._sleep(wait)
        return await self._fetch_once(cursor)

    async def _fetch_once(self, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
        body = await self._fetch(cursor)
        self.report.bytes += body.length
        return check_page(body.content, cursor)


def check_page(content: bytes, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
    """The items of a page, and its last line. Raises PullError."""
    if content.count(b"\n") > MAX_PAGE_LINES:
        raise PullError(f"The page has more than {MAX_PAGE_LINES} lines; this is not a doi-proxy.")
    items = list(read_bundle(BytesIO(content)))
    last = items.pop()
    if not isinstance(last, BundleEnd) or last.checksum is not Checksum.RIGHT:
        raise PullError("The page is cut, or was changed on its way: its checksum is wrong or missing.")
    first, end = (items[0], items[-1]) if items else (None, None)
    if isinstance(first, Refused):
        raise PullError(f"The page cannot be read: {first.reason}.")
    if not isinstance(first, DeltaStart) or not isinstance(end, DeltaEnd):
        raise PullError("The page is not a delta; check the URL of the parent.")
    if first.since != cursor or (end.more and end.next == cursor) or not end.next:
        raise PullError("The page does not continue where the last one ended.")
    return items, end
