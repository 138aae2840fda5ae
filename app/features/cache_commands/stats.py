"""Counts the entries of the cache."""

from __future__ import annotations

from typing import Final

from app.cache.tiered import TieredStore
from app.features.progress import Bar
from app.handle.answer import ResponseCode

#: Entries between two updates of the progress bar.
_STEP: Final = 1_000


async def count_entries(cache: TieredStore, now: float, bar: Bar) -> dict[str, int]:
    """Count the entries that are fresh, stale and negative at `now`, in seconds since the epoch.

    Entries past their hard expiry are not counted, even if the store still has them.
    """
    counts = {"fresh": 0, "stale": 0, "negative": 0}
    number = 0
    async for entry in cache.scan():
        if entry.answer.code is not ResponseCode.SUCCESS:
            counts["negative"] += 1
        else:
            counts["fresh" if entry.is_fresh(now) else "stale"] += 1
        number += 1
        if number % _STEP == 0:
            bar.advance(_STEP)
    return counts
