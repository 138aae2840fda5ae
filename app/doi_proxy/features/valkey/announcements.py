"""Reads the announcements of changed entries from the streams of all partitions."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any, Final

from doi_proxy.cache.store import MAX_ANNOUNCEMENTS, Changes
from doi_proxy.errors import StoreError
from doi_proxy.features.valkey.layout import Layout, Partition
from doi_proxy.features.valkey.node import Script, Work
from doi_proxy.features.valkey.scripts import ANNOUNCEMENT_PAGE, LONGEST_STREAM, READ_ANNOUNCEMENTS
from doi_proxy.features.valkey.servers import Servers, query_each

log = logging.getLogger(__name__)

#: Pages of one stream that one read requests. The rest is read the next time.
_MAX_PAGES: Final = LONGEST_STREAM // ANNOUNCEMENT_PAGE + 1
#: The id of an announcement.
_CURSOR: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)

_READ: Final = Script(READ_ANNOUNCEMENTS)


@dataclass(slots=True)
class _Stream:
    """The stream of one partition: its cursor, and the announcements since the last read."""

    partition: Partition
    cursor: str  # "" if it was never read
    keys: list[str] = field(default_factory=list)
    overrun: bool = False

    def read(self) -> Work[_Page]:
        """The work that reads the next page."""
        return _READ.work([self.partition.announcements], [self.cursor], _read_page)

    def use(self, page: _Page) -> bool:
        """Use a page. Returns whether there are more."""
        self.cursor = page.cursor
        self.keys += page.keys
        if page.loss:
            self.overrun = True
            log.warning("%s %s; no entry in memory is used", self.partition.announcements, page.loss)
        return page.more


@dataclass(frozen=True, slots=True)
class _Page:
    """The reply of READ_ANNOUNCEMENTS."""

    cursor: str
    loss: str
    more: bool
    keys: tuple[str, ...]


def _read_page(reply: Any) -> _Page:
    cursor, loss, more, *keys = (word.decode(errors="replace") for word in reply)
    if not _CURSOR.fullmatch(cursor):
        raise ValueError(cursor)
    return _Page(cursor, loss, more == "1", tuple(keys))


async def read_announcements(servers: Servers, layout: Layout, cursor: str | None) -> Changes:
    """See Coordination.changes. The cursor has one part for each partition.

    A server that lost its data returns only the announcements since then. A partition whose server fails keeps its
    part of the cursor. Raises StoreError if all servers fail.
    """
    parts = (cursor or "").split(",")
    if len(parts) != len(layout.partitions):
        parts = [""] * len(layout.partitions)
    streams = [_Stream(partition, part) for partition, part in zip(layout.partitions, parts, strict=True)]
    waiting, failures = streams, 0
    for _ in range(_MAX_PAGES):
        replies = await query_each(servers, [(stream.partition.slot, stream.read()) for stream in waiting])
        failures += sum(isinstance(reply, StoreError) for reply in replies)
        if failures == len(streams):
            raise next(reply for reply in replies if isinstance(reply, StoreError))
        pages = zip(waiting, replies, strict=True)
        waiting = [stream for stream, reply in pages if not isinstance(reply, StoreError) and stream.use(reply)]
        if not waiting:
            break
    keys = dict.fromkeys(key for stream in streams for key in stream.keys)
    overrun = len(keys) > MAX_ANNOUNCEMENTS or any(stream.overrun for stream in streams)
    return Changes(",".join(stream.cursor for stream in streams), tuple(keys), overrun=overrun)
