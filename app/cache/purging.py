"""What a purge deletes in a store: the entries of a scope, and their lines in notes."""

from __future__ import annotations

import logging
from typing import Final

from app.cache.purges import EVERYTHING, MAX_LATE_PURGES, UNKNOWN, scopes_of
from app.cache.store import SharedStore

log = logging.getLogger(__name__)

#: Notes with a line for each name, which begins with its key and a tab: those that are fetched first, and works.
POPULAR_NAMES: Final = "popular-names"
WORKS: Final = "works"


async def forget_names(store: SharedStore, scopes: frozenset[str]) -> None:
    """Drop the lines of names of scopes from the notes."""
    for note in (POPULAR_NAMES, WORKS):
        data = await store.read_note(note)
        lines = (data or b"").decode("utf-8", "replace").split("\n")
        kept = "\n".join(line for line in lines if scopes.isdisjoint(scopes_of(line.partition("\t")[0]))).encode()
        if data and kept != data:
            await store.write_note(note, kept)


async def delete_scope(store: SharedStore, scope: str) -> None:
    """Delete the entries of a scope. Of UNKNOWN, all are deleted: more names were purged than were remembered."""
    if scope == UNKNOWN:
        log.warning("The store is purged completely: it missed more than %d purges.", MAX_LATE_PURGES)
        scope = EVERYTHING
    await store.delete(scope)
    if not scope or scope.endswith("/"):
        async for entry in store.scan(scope):
            await store.delete(entry.key)
        await store.flush()
