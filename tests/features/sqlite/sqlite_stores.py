"""SQLite stores for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from doi_proxy.features.sqlite.rows import Records
from doi_proxy.features.sqlite.store import SqliteStore
from tests.cache.entries import entry
from tests.clock import Clock

#: Long enough that nothing is written unless a test asks for it, in seconds.
NEVER = 3_600.0


@asynccontextmanager
async def opened(
    path: Path, clock: Clock, max_bytes: int = 100_000_000, records: type[Records] | None = None
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=clock, max_bytes=max_bytes, gather=NEVER, records=records)
    try:
        yield store
    finally:
        await store.close()


async def keys(store: SqliteStore) -> list[str]:
    return [found.key async for found in store.scan()]


async def fill(path: Path, clock: Clock, number: int = 3) -> None:
    async with opened(path, clock) as store:
        for n in range(number):
            await store.put(entry(f"10.1000/{n:05}", fetched_at=clock()))


def forbid_writing(path: Path) -> None:
    """Make the file beside a closed store impossible to create, so that the store can only be read."""
    lock = Path(f"{path}.lock")
    lock.unlink()
    lock.symlink_to(path.parent / "nowhere" / "lock")
