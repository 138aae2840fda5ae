"""`doi-proxy cache warm`: fetches the names of lists that are not fresh in the store."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from doi_proxy.features.bundles.name_lists import UniqueNames, count_names, read_lists
from doi_proxy.features.bundles.visit import Visit, VisitBounds
from doi_proxy.features.bundles.visit_report import print_tally, stop_visit_on_signals, was_interrupted
from doi_proxy.features.command import CommandContext
from doi_proxy.system.interruption import INTERRUPTED
from doi_proxy.system.progress import progress


async def warm(context: CommandContext, lists: Sequence[str], *, column: str | None, limit: int | None) -> int:
    """Fetch the names of lists that are not fresh in the store. Exit status 1 if one could not be verified."""
    settings = context.settings
    any_handle = settings.resolve == "any"
    names = UniqueNames(read_lists(lists, column=column, any_handle=any_handle))
    total = count_names(lists, column, any_handle)
    async with context.stores.open_online() as parts:
        bounds = VisitBounds(settings.upstream_max_concurrency, limit)
        visit = Visit(parts.cache, parts.resolver, clock=time.time, bounds=bounds)
        with progress("warming", total) as bar, stop_visit_on_signals(visit):
            await visit.run(iter(names), bar)
    print_tally(visit.tally, sys.stdout)
    if names.repeated:
        print(f"{names.repeated} names were repeated, and counted once", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stop_reason:
        print(
            f"stopped: {visit.stop_reason}; run the same command again to continue; it skips fresh names",
            file=sys.stderr,
        )
    if was_interrupted(visit):
        return INTERRUPTED
    if not visit.tally.counts.total():
        print("the lists have no names", file=sys.stderr)
        return 1
    return 1 if visit.tally.has_failures() else 0
