"""What a store remembers about the parents that it follows (`doi-proxy cache pull`), in one of its notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import uuid4

import msgspec

#: The name of the note.
NOTE: Final = "parents"
#: Limit of the parents that a store remembers. A child has one, or a few.
MAX_PARENTS: Final = 100
#: The lease of the pull that changes the note. A name has no control characters.
_LEASE: Final = "\tparents"
_LEASE_SECONDS: Final = 2.0
#: Seconds between two attempts to take the lease, and their number: until it ends.
_POLL: Final = 0.05
_ATTEMPTS: Final = 50


class ParentState(msgspec.Struct, frozen=True):
    """How far a store has the changes of one parent. It is in the store itself: an empty store begins again."""

    #: The URL of the parent, without a password.
    url: str
    cursor: str
    #: When a pull last had all changes of the parent, in seconds since the epoch. 0.0 if none has had yet.
    completed_at: float = 0.0


class Notes(Protocol):
    """What of the cache this feature uses."""

    async def read_note(self, name: str) -> bytes | None:
        """See Store."""

    async def change_note(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """See TieredStore."""

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """See Coordination."""

    async def release(self, key: str, owner: str) -> None:
        """See Coordination."""


async def read_parents(store: Notes) -> tuple[ParentState, ...]:
    """The parents that the store follows."""
    return _decode(await store.read_note(NOTE))


async def save_parent(store: Notes, state: ParentState) -> None:
    """Save the state of a parent. Earlier changes are durable before it."""
    owner = uuid4().hex
    for _ in range(_ATTEMPTS):
        # Two pulls of different parents at the same moment must not forget each other's state.
        if await store.lease(_LEASE, owner, _LEASE_SECONDS):
            break
        await asyncio.sleep(_POLL)

    def add(data: bytes | None) -> bytes:
        return encode_parents([state, *(one for one in _decode(data) if one.url != state.url)])

    try:
        await store.change_note(NOTE, add)
    finally:
        await store.release(_LEASE, owner)


def encode_parents(states: Sequence[ParentState]) -> bytes:
    """The data of the note."""
    return msgspec.json.encode(states[:MAX_PARENTS])


def _decode(data: bytes | None) -> tuple[ParentState, ...]:
    """A damaged note counts as none: the child then begins again."""
    try:
        return () if data is None else msgspec.json.decode(data, type=tuple[ParentState, ...])[:MAX_PARENTS]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
