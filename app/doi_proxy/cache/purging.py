"""What a purge deletes in a store: the entries of a scope, and their lines in the note of works."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from doi_proxy.cache import purges
from doi_proxy.cache.store import Store, change_note

log = logging.getLogger(__name__)

#: The note with a line for each work, which begins with its key and a tab.
WORKS: Final = "works"


async def forget_works(store: Store, scopes: frozenset[str]) -> None:
    """Drop the lines of names of scopes from the note of works."""
    await change_note(store, WORKS, partial(_drop_lines, scopes))


def _drop_lines(scopes: frozenset[str], note: bytes | None) -> bytes:
    lines = (note or b"").decode("utf-8", "replace").split("\n")
    return "\n".join(line for line in lines if scopes.isdisjoint(purges.scopes_of(line.partition("\t")[0]))).encode()


async def delete_purged(store: Store, scope: str, at: float, *, announce: bool) -> None:
    """Delete the entries of a scope that were fetched before a purge at `at`, which the store has missed.

    With `announce`, the other instances have missed it too. Raises StoreError.
    """
    if scope == purges.UNKNOWN:
        log.warning("The store is purged completely: it missed more than %d purges.", purges.MAX_LATE_PURGES)
    if purges.has_many_keys(scope):
        if announce:
            await store.delete(scope)
        async for entry in store.scan(scope if scope.endswith("/") else ""):
            if entry.fetched_at <= at and (scope != purges.NOT_FOUND or entry.is_negative):
                await store.delete(entry.key, announce=False)
        await store.flush()
        if announce:
            await store.announce(scope)
    elif (found := await store.get(scope)) is not None and found.fetched_at <= at:
        await store.delete(scope)
    elif announce:
        await store.announce(scope)
    if announce:
        await forget_works(store, frozenset([scope]))
