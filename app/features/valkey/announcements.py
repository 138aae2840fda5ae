"""Reads the announcements of changed entries from the streams of all partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from app.cache.coordination import MAX_ANNOUNCEMENTS, Changes
from app.errors import DamagedEntry, StoreError
from app.features.valkey.layout import Layout, Partition
from app.features.valkey.node import Access, Script, Words
from app.features.valkey.scripts import BEGIN_ANEW
from app.features.valkey.servers import Servers

log = logging.getLogger(__name__)

_BEGIN_ANEW: Final = Script(BEGIN_ANEW)

#: The cursor of a stream without announcements.
_START: Final = "0-0"
#: A stream that lost the announcement at its cursor is read again from this many milliseconds before it. A failover
#: can lose the newest ones, and the clock of the new primary, which numbers them, can be this much behind.
_REWIND: Final = 60_000
#: The most announcements that one read returns.
_COUNT: Final = MAX_ANNOUNCEMENTS + 2

Announcements = Sequence[tuple[bytes, dict[bytes, bytes]]]


@dataclass(slots=True)
class _Stream:
    """The stream of one partition: its cursor, and the announcements since the last read."""

    partition: Partition
    cursor: str  # "" if it was never read
    keys: Iterable[str] = ()
    overrun: bool = False

    def first_command(self) -> Words:
        """Reads from the cursor on, or the newest announcement."""
        if not self.cursor:
            return "XREVRANGE", self.partition.announcements, "+", "-", "COUNT", 1
        return "XRANGE", self.partition.announcements, self.cursor, "+", "COUNT", _COUNT

    def is_complete(self, reply: Announcements) -> bool:
        """Whether no announcement is missing: the one at the cursor was not trimmed, and is not lost."""
        return not self.cursor or (bool(reply) and reply[0][0].decode() == self.cursor)

    def advance(self, reply: Announcements) -> None:
        """Use a complete reply."""
        if not self.cursor:
            self.cursor = reply[0][0].decode() if reply else _START
        else:
            self._use(reply[1:])

    def rewind_commands(self) -> tuple[Words, Words]:
        """Read once more, from some time before the cursor on, and count the announcements."""
        since = max(0, int(self.cursor.partition("-")[0]) - _REWIND)
        stream = self.partition.announcements
        return ("XRANGE", stream, since, "+", "COUNT", _COUNT), ("XLEN", stream)

    def recover(self, reply: Announcements, length: int) -> None:
        """Use the replies to `rewind_commands`. A full stream was trimmed, so announcements are missing."""
        self._use(reply)
        self.overrun = bool(reply) and (self.overrun or length >= MAX_ANNOUNCEMENTS)

    def _use(self, new: Announcements) -> None:
        if new:
            self.cursor = new[-1][0].decode()
            self.keys = [fields.get(b"key", b"").decode(errors="replace") for _, fields in new]
            self.overrun = len(new) > MAX_ANNOUNCEMENTS


async def read_announcements(servers: Servers, layout: Layout, cursor: str | None) -> Changes:
    """See Coordination.changes. The cursor has one part for each partition.

    A server that lost its data returns only the announcements since then. A partition whose server fails keeps its
    part of the cursor. Raises StoreError if all servers fail.
    """
    parts = (cursor or "").split(",")
    if len(parts) != len(layout.partitions):
        parts = [""] * len(layout.partitions)
    streams = [_Stream(partition, part) for partition, part in zip(layout.partitions, parts, strict=True)]
    replies = await servers.query_each([(one.partition.slot, one.first_command()) for one in streams])
    failures = [reply for reply in replies if isinstance(reply, StoreError) and not isinstance(reply, DamagedEntry)]
    if len(failures) == len(streams):
        raise failures[0]
    incomplete = []
    for stream, reply in zip(streams, replies, strict=True):
        if isinstance(reply, DamagedEntry):
            await _replace(servers, stream)
        elif isinstance(reply, StoreError):
            continue
        elif stream.is_complete(reply):
            stream.advance(reply)
        else:
            incomplete.append(stream)
    await _recover(servers, incomplete)
    keys = dict.fromkeys(key for stream in streams for key in stream.keys)
    overrun = len(keys) > MAX_ANNOUNCEMENTS or any(stream.overrun for stream in streams)
    return Changes(",".join(stream.cursor for stream in streams), tuple(keys), overrun=overrun)


async def _replace(servers: Servers, stream: _Stream) -> None:
    """Begin a stream anew whose key has data of another program. Announcements were lost with it."""
    partition = stream.partition
    log.warning(
        "%s had data of another program; it is deleted, and no entry in memory is used", partition.announcements
    )
    with suppress(StoreError):
        await servers.call(partition.slot, _BEGIN_ANEW.work([partition.announcements], []), Access.WRITE)
        stream.cursor, stream.overrun = _START, True


async def _recover(servers: Servers, streams: list[_Stream]) -> None:
    commands = [(one.partition.slot, words) for one in streams for words in one.rewind_commands()]
    replies: list[Any] = await servers.query_each(commands) if commands else []
    for stream, reply, length in zip(streams, replies[::2], replies[1::2], strict=True):
        if not isinstance(reply, StoreError) and not isinstance(length, StoreError):
            stream.recover(reply, length)
