"""Fetches the names under a prefix from the upstream, as a bulk job: the oldest answers of the cache first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from doi_names.errors import NotADOI
from doi_names.name import HandleName, fold
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import Origin
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import Priority

#: Queries at the same time.
_CONCURRENCY: Final = 4
#: Seconds after which no further query is sent. A client of the admin API waits for the answer.
MAX_SECONDS: Final = 60.0
#: Failures in a row after which the rest is left out.
MAX_FAILURES: Final = 10
_NOW: Final = Conditions(authoritative=True, priority=Priority.BULK)


@dataclass(slots=True)
class RefreshResult:
    """How many names were refreshed, how many failed, how many were left out, and the token of the last failure."""

    refreshed: int = 0
    failed: int = 0
    left_out: int = 0
    failure: str | None = None
    failures_in_a_row: int = 0


def require_name(name: HandleName) -> HandleName:
    """Refuse text that cannot be a name: its answer "not found" would be kept. Raises NotADOI."""
    if not name.can_be_handle or not name.suffix:
        raise NotADOI(f"“{name.text[:100]}” is not a DOI name; a DOI name looks like 10.1000/182.")
    return name


async def refresh_prefix(cache: TieredStore, resolver: Resolver, prefix: HandleName, *, limit: int) -> RefreshResult:
    """Fetch up to `limit` names that the cache has under a prefix. An upstream that is a proxy gets `auth`.

    Names beyond the limit, after MAX_SECONDS or after MAX_FAILURES are left out, and so are names with a local record.
    """
    names, total = await _find_oldest(cache, fold(prefix.key).rstrip("/") + "/", limit)
    result = RefreshResult()
    waiting = iter(names)
    deadline = asyncio.get_running_loop().time() + MAX_SECONDS
    async with asyncio.TaskGroup() as group:
        for _ in range(_CONCURRENCY):
            group.create_task(_work(resolver, waiting, result, deadline))
    result.left_out = total - result.refreshed - result.failed
    return result


async def _find_oldest(cache: TieredStore, scope: str, limit: int) -> tuple[list[HandleName], int]:
    """The names with the oldest answers, and the number of all names."""
    await cache.flush()
    keys = set[str]()
    oldest: list[tuple[float, str]] = []
    async for entry in cache.scan(scope):
        # Valkey may return an entry twice.
        if entry.key not in keys:
            keys.add(entry.key)
            add = heapq.heappush if len(oldest) < limit else heapq.heappushpop
            add(oldest, (-entry.fetched_at, entry.key))
    return [HandleName(key) for _, key in sorted(oldest, reverse=True)], len(keys)


async def _work(resolver: Resolver, waiting: Iterator[HandleName], result: RefreshResult, deadline: float) -> None:
    while result.failures_in_a_row < MAX_FAILURES and asyncio.get_running_loop().time() < deadline:
        name = next(waiting, None)
        if name is None:
            return
        failure: CouldNotVerify | None
        try:
            resolution = await resolver.resolve(name, _NOW)
            if resolution.origin is Origin.LOCAL:
                continue
            failure = resolution.failure
        except CouldNotVerify as error:
            failure = error
        _count(result, failure)


def _count(result: RefreshResult, failure: CouldNotVerify | None) -> None:
    if failure is None:
        result.refreshed += 1
        result.failures_in_a_row = 0
    else:
        result.failed += 1
        result.failures_in_a_row += 1
        result.failure = failure.token
