"""What a store remembers about its primaries (`doi-proxy cache pull`), in one of its notes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import msgspec

from app.cache.tiered import TieredStore

#: The name of the note. Release 0.2.0 calls a primary a parent, and reads this note of a Valkey server.
NOTE: Final = "parents"
#: Limit of the primaries that a store remembers. A replica has one, or a few.
MAX_PRIMARIES: Final = 100
#: The lease of the pull that changes the note, as in release 0.2.0. A name has no control characters.
_LEASE: Final = "\tparents"
_LEASE_SECONDS: Final = 2.0
#: Seconds between two attempts to take the lease, and their number: until it ends.
_POLL: Final = 0.05
_ATTEMPTS: Final = 50
#: The table of a SQLite store of release 0.2.0.
_OLD_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'parents'"


class PrimaryState(msgspec.Struct, frozen=True):
    """How far a store has the changes of one primary. It is in the store itself: an empty store begins again."""

    #: The URL of the primary, without a password.
    url: str
    cursor: str
    #: When a pull last had all changes of the primary, in seconds since the epoch. 0.0 if none has had yet.
    completed_at: float = 0.0


async def read_primaries(cache: TieredStore) -> tuple[PrimaryState, ...]:
    """The primaries of the store."""
    return _decode(await cache.read_note(NOTE))


async def save_primary(cache: TieredStore, state: PrimaryState) -> None:
    """Save the state of a primary. Earlier changes are durable before it."""
    owner = uuid4().hex
    for _ in range(_ATTEMPTS):
        # Two pulls of different primaries at the same moment must not forget each other's state.
        if await cache.lease(_LEASE, owner, _LEASE_SECONDS):
            break
        await asyncio.sleep(_POLL)

    def add(data: bytes | None) -> bytes:
        return _encode([state, *(primary for primary in _decode(data) if primary.url != state.url)])

    try:
        await cache.change_note(NOTE, add)
    finally:
        await cache.release(_LEASE, owner)


def move_primaries(connection: sqlite3.Connection, _: float) -> None:
    """Move the rows of the table of release 0.2.0 into the note, and drop the table. Raises sqlite3.Error."""
    if connection.execute(_OLD_TABLE).fetchone() is None:
        return
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("SELECT url, cursor, completed_at FROM parents ORDER BY url").fetchall()
    # A damaged row can have values of any type.
    states = [
        PrimaryState(url, cursor, at)
        for url, cursor, at in found
        if isinstance(url, str) and isinstance(cursor, str) and isinstance(at, float)
    ]
    connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (NOTE, _encode(states)))
    connection.execute("DROP TABLE parents")
    connection.execute("COMMIT")


def _encode(states: Sequence[PrimaryState]) -> bytes:
    return msgspec.json.encode(states[:MAX_PRIMARIES])


def _decode(data: bytes | None) -> tuple[PrimaryState, ...]:
    """A damaged note counts as none: the replica then begins again."""
    try:
        return () if data is None else msgspec.json.decode(data, type=tuple[PrimaryState, ...])[:MAX_PRIMARIES]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
