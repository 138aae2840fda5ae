"""Pulls the changes of a primary page by page, checks each page, and then applies it.

A page is applied only if its checksum is right and it continues where the last one ended. The cursor is saved after the
page is durable, so a pull that was killed applies at most one page again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from app.errors import DoiProxyError
from app.features.bundles.bundle import BundleEnd, BundleItem, Checksum, Refused, read_bundle
from app.features.bundles.delta import DeltaEnd, DeltaStart
from app.features.bundles.import_bundle import BundleImport
from app.features.follow.errors import ChangesGone

#: Seconds to wait before a page that failed is fetched again. After the last one the pull ends.
WAITS: Final = (1.0, 2.0, 4.0, 8.0)
#: Limit of lines in a page. A primary sends at most 2,000 changes and a few lines about the page.
MAX_PAGE_LINES: Final = 10_000


class PullError(DoiProxyError):
    """The pull cannot go on. Nothing of the page was applied."""


class BrokenPage(PullError):
    """A page did not arrive, or is not right. It may be right the next time."""


class PrimaryBusy(PullError):
    """The primary refuses for the moment, and names the seconds to wait."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


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


@dataclass(frozen=True, slots=True)
class PullLimits:
    """A pull ends after `bytes` on the wire, or after it waited `busy` seconds for a page. The next one continues."""

    bytes: int = 16 * 1024**3
    # One page, in seconds, from the connection to the last byte.
    page: float = 120.0
    # The primary reads few pages at a time; ten minutes let several replicas take their turns.
    busy: float = 600.0


class Pull:
    """One pull, from a cursor to the end of the primary's changes."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Body]],
        work: BundleImport,
        save: Callable[[DeltaEnd], Awaitable[None]],
        *,
        sleep: Callable[[float], Awaitable[None]],
        chance: Callable[[], float],
        limits: PullLimits,
    ) -> None:
        """`fetch` gets a cursor, and raises PullError and ChangesGone. `save` gets the last line of a durable page."""
        self._fetch = fetch
        self._work = work
        self._save = save
        self._sleep = sleep
        self._chance = chance
        self._limits = limits
        self._circle = _CircleFinder()
        self.report = PullReport()

    async def run(self, cursor: str) -> PullReport:
        """Pull until the primary has no more. Raises StoreError."""
        report = self.report
        while not report.is_complete and report.failure is None:
            try:
                items, end = await self._fetch_page(cursor)
            except ChangesGone as error:
                if not cursor or report.began_again:
                    report.failure = error.message
                    break
                # What the log has forgotten is known only from everything.
                report.began_again, cursor = True, ""
                continue
            except PullError as error:
                report.failure = error.message
                break
            for item in items:
                await self._work.add(item)
            await self._work.finish()
            await self._save(end)
            cursor = end.next
            report.pages += 1
            report.is_complete = not end.more
        return report

    async def _fetch_page(self, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
        """A page that is right. A failure is repeated a few times, and a busy primary for `busy` seconds."""
        waits, busy = iter(WAITS), 0.0
        while True:
            if self.report.bytes >= self._limits.bytes:
                raise PullError(
                    f"the limit of {self._limits.bytes} bytes is reached; run the command again to continue"
                )
            try:
                return await self._fetch_once(cursor)
            except PrimaryBusy as error:
                # Replicas that were refused together must not come again together.
                wait = error.retry_after * (1.0 + self._chance())
                busy += wait
                if busy > self._limits.busy:
                    raise
            except BrokenPage:
                if (wait := next(waits, -1.0)) < 0.0:
                    raise
            self.report.repeats += 1
            await self._sleep(wait)

    async def _fetch_once(self, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
        body = await self._fetch(cursor)
        self.report.bytes += body.length
        items, end = check_page(body.content, cursor)
        if end.more and self._circle.closes(end.next):
            raise PullError("The cursors of the primary go in a circle: a page leads to an earlier one.")
        return items, end


class _CircleFinder:
    """Finds a circle of cursors. It compares each with one earlier cursor, which it replaces at ever larger distances
    (R. P. Brent, An improved Monte Carlo factorization algorithm, 1980, section 3)."""

    def __init__(self) -> None:
        self._earlier = ""
        self._steps = 0
        self._distance = 1

    def closes(self, cursor: str) -> bool:
        """Whether this cursor was there before. A long circle is found after some rounds."""
        if cursor == self._earlier:
            return True
        self._steps += 1
        if self._steps == self._distance:
            self._earlier, self._steps, self._distance = cursor, 0, 2 * self._distance
        return False


def check_page(content: bytes, cursor: str) -> tuple[list[BundleItem], DeltaEnd]:
    """The items of a page, and its last line. Raises PullError."""
    if content.count(b"\n") > MAX_PAGE_LINES:
        raise PullError(f"The page has more than {MAX_PAGE_LINES} lines; this is not a doi-proxy.")
    items = list(read_bundle(BytesIO(content)))
    last = items.pop()
    if not isinstance(last, BundleEnd) or last.checksum is not Checksum.RIGHT:
        raise BrokenPage("The page is cut, or was changed on its way: its checksum is wrong or missing.")
    first, end = (items[0], items[-1]) if items else (None, None)
    if isinstance(first, Refused):
        raise PullError(f"The page cannot be read: {first.reason}.")
    if not isinstance(first, DeltaStart) or not isinstance(end, DeltaEnd):
        raise PullError("The page is not a delta; check the URL of the primary.")
    if first.since != cursor or (end.more and end.next == cursor) or not end.next:
        raise BrokenPage("The page does not continue where the last one ended.")
    return items, end
