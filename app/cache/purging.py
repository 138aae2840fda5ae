"""What a purge deletes in a store: the entries of a scope, and their names in the list of popular ones."""

from __future__ import annotations

from typing import Final

from app.cache.purges import scopes_of
from app.cache.store import SharedStore

#: The note with the keys of the names that are fetched first, one a line. A purge drops its names from it.
POPULAR_NAMES: Final = "popular-names"


async def forget_names(store: SharedStore, scopes: frozenset[str]) -> None:
    """Drop the names of scopes from the list of names that are fetched first."""
    names = await store.read_note(POPULAR_NAMES)
    listed = (names or b"").decode("utf-8", "replace").split("\n")
    kept = [key for key in listed if scopes.isdisjoint(scopes_of(key))]
    if names and (data := "\n".join(kept).encode()) != names:
        await store.write_note(POPULAR_NAMES, data)


async def delete_scope(store: SharedStore, scope: str) -> None:
    """Delete the entries of a scope."""
    await store.delete(scope)
    if not scope or scope.endswith("/"):
        async for entry in store.scan(scope):
            await store.delete(entry.key)
    await store.flush()
