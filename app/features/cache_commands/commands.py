"""Runs `doi-proxy cache export|warm|stats` and prints the results."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from app.cache.store import StoreStats
from app.doi.name import HandleName
from app.errors import DoiProxyError
from app.features.admin.show import show_time
from app.features.bundles.bundle import BundleWriter
from app.features.bundles.output import Output
from app.features.cache_commands.export import RecordWriter, export_all, export_prefix
from app.features.cache_commands.lists import UniqueNames, read_lists
from app.features.cache_commands.stats import count_entries
from app.features.cache_commands.visit import Visit, VisitBounds, VisitOutcome
from app.features.cache_commands.visit_report import print_tally, stop_on_signals, was_interrupted
from app.features.command import INTERRUPTED, STANDARD_INPUT, STANDARD_OUTPUT, CommandContext, Stores
from app.features.feature import Core, Observers
from app.features.follow.primaries import PrimaryState, read_primaries
from app.features.options import Settings
from app.features.progress import progress, shows_progress

#: Limit of the entries that `stats` reads without --every-entry. It takes two seconds.
MAX_COUNTED: Final = 200_000


# --- export -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The records to export: all, the names of a list, or those under a prefix."""

    names_from: str | None = None
    prefix: HandleName | None = None
    queries_upstream: bool = False
    column: str | None = None


async def export(context: CommandContext, choice: ExportChoice, output: str) -> int:
    """Write a bundle. Exit status 1 if a name of the list is not in it. Raises ConfigurationError, StoreError."""
    if not choice.queries_upstream:
        context.stores.require()
    messages = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    try:
        with Output(output) as out:
            writer = BundleWriter(out.file)
            visit = await _export(context, choice, writer)
            if visit is not None:
                _report_export(visit, messages, asked=choice.queries_upstream)
            if visit is not None and visit.stop_reason:
                return INTERRUPTED if was_interrupted(visit) else 1
            writer.finish()
            out.keep()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DoiProxyError(f"{output}: cannot be written: {error.strerror or error}") from error
    print(f"{writer.lines} records exported", file=messages)
    return 1 if visit is not None and visit.tally.counts[VisitOutcome.COULD_NOT_VERIFY] else 0


async def _export(context: CommandContext, choice: ExportChoice, writer: BundleWriter) -> Visit | None:
    """Write the chosen records. Returns the visit of a list."""
    records = RecordWriter(writer)
    observers, stores = Observers(resolver=records), context.stores
    if choice.names_from is not None:
        async with stores.open_online(observers) if choice.queries_upstream else stores.open_sealed(observers) as parts:
            return await _export_list(context.settings, parts, choice, choice.names_from, records)
    elif choice.prefix is not None:
        async with stores.open_sealed(observers) as parts:
            with progress("exporting", None) as bar:
                await export_prefix(parts.cache, parts.resolver, choice.prefix, records, bar)
    else:
        async with stores.open(read_only=True) as cache:
            stats = await cache.stats()
            with progress("exporting", None if stats.store is None else stats.store.entries) as bar:
                await export_all(cache, writer, bar)
    return None


async def _export_list(
    settings: Settings, parts: Core, choice: ExportChoice, path: str, records: RecordWriter
) -> Visit:
    any_handle = settings.resolve == "any"
    names = UniqueNames(read_lists([path], column=choice.column, any_handle=any_handle))
    concurrency = settings.upstream_max_concurrency if choice.queries_upstream else 1
    visit = Visit(
        parts.cache,
        parts.resolver,
        clock=time.time,
        bounds=VisitBounds(concurrency, queries_upstream=choice.queries_upstream),
        after_each=records.write,
    )
    total = count_names([path], choice.column, any_handle)
    with progress("exporting", total) as bar, stop_on_signals(visit):
        await visit.run(iter(names), bar)
    return visit


def _report_export(visit: Visit, messages: TextIO, *, asked: bool) -> None:
    if asked:
        print_tally(visit.tally, messages)
    else:
        for line in visit.tally.messages:
            print(line.removeprefix(f"{VisitOutcome.COULD_NOT_VERIFY.value}: "), file=sys.stderr)
        if missing := visit.tally.counts[VisitOutcome.COULD_NOT_VERIFY]:
            print(f"{missing} names are not in the store; --ask fetches them from the upstream", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stop_reason:
        print(f"stopped: {visit.stop_reason}; the bundle is incomplete", file=sys.stderr)


# --- warm ---------------------------------------------------------------------------------------------------------


async def warm(context: CommandContext, lists: Sequence[str], *, column: str | None, limit: int | None) -> int:
    """Fetch the names of lists that are not fresh in the store. Exit status 1 if any could not be verified."""
    settings = context.settings
    any_handle = settings.resolve == "any"
    names = UniqueNames(read_lists(lists, column=column, any_handle=any_handle))
    total = count_names(lists, column, any_handle)
    async with context.stores.open_online() as parts:
        bounds = VisitBounds(settings.upstream_max_concurrency, limit)
        visit = Visit(parts.cache, parts.resolver, clock=time.time, bounds=bounds)
        with progress("warming", total) as bar, stop_on_signals(visit):
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
    return 1 if visit.tally.has_failures() else 0


def count_names(lists: Sequence[str], column: str | None, any_handle: bool) -> int | None:
    """Count the names of lists. None if no bar is shown, or if a list cannot be read twice."""
    if STANDARD_INPUT in lists or not shows_progress():
        return None
    return sum(1 for _ in UniqueNames(read_lists(lists, column=column, any_handle=any_handle)))


# --- stats --------------------------------------------------------------------------------------------------------


async def show_stats(stores: Stores, *, as_json: bool, every_entry: bool) -> int:
    """Print the entries and bytes of the store, its fresh, stale and negative entries, and whether it works.

    Exit status 1 if it does not. Raises ConfigurationError, StoreError.
    """
    stores.require()
    async with stores.open(read_only=True) as cache:
        tiers = await cache.stats()
        store = tiers.store or StoreStats(tiers.memory_entries, tiers.memory_bytes, True, "memory")
        facts: dict[str, Any] = {"entries": store.entries, "bytes": store.bytes, "registry": store.registry}
        if store.healthy and (every_entry or store.entries <= MAX_COUNTED):
            with progress("counting", store.entries) as bar:
                facts |= await count_entries(cache, time.time(), bar)
        facts |= {"healthy": store.healthy, "detail": store.detail}
        # A store that fails is shown as such, without a further failure.
        primaries = await read_primaries(cache) if store.healthy else ()
        facts["primaries"] = [_describe_primary(one) for one in primaries]
    _print_facts(facts, as_json)
    return 0 if store.healthy else 1


def _describe_primary(state: PrimaryState) -> dict[str, str | None]:
    completed = show_time(state.completed_at) if state.completed_at else None
    return {"url": state.url, "cursor": state.cursor, "completed": completed}


def _print_facts(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        # Release 0.2 calls them parents. The old name goes with the release after 0.3.
        print(json.dumps(facts | {"parents": facts["primaries"]}))
        return
    for primary in facts.pop("primaries"):
        print(f"primary:  {primary['url']}, complete {primary['completed'] or 'never'}, cursor {primary['cursor']}")
    for name, value in facts.items():
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        print(f"{name + ':':10}{shown}")
