"""`doi-proxy cache export`: writes all records, those of lists, or those under a prefix to a bundle."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.bundles.bundle import BundleWriter, OutputFile
from doi_proxy.features.bundles.visit import (
    MAX_REMEMBERED,
    UniqueNames,
    Visit,
    VisitBounds,
    VisitOutcome,
    count_names,
    print_tally,
    read_lists,
    resolve_dependencies,
    stop_visit_on_signals,
    was_interrupted,
)
from doi_proxy.features.feature import CommandContext, Core, Observers
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.prefix_chain import PrefixChain
from doi_proxy.resolver.resolution import Origin, Resolution, ResolutionObserver
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.system.files import STANDARD_OUTPUT
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import INTERRUPTED, Bar, progress


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The records to export: all, the names of lists, or those under a prefix."""

    lists: Sequence[str] = ()
    prefix: HandleName | None = None
    queries_upstream: bool = False
    column: str | None = None


async def export(context: CommandContext, choice: ExportChoice, output: str) -> int:
    """Write a bundle. Exit status 1 if a name of the lists is not in it. Without any records, no file is written.

    Raises ConfigurationError and StoreError.
    """
    if not choice.queries_upstream:
        context.stores.require()
    messages = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    with OutputFile(output) as out:
        writer = BundleWriter(out.file)
        visit, registry = await _export(context, choice, writer)
        if visit is not None:
            _report_export(visit, messages, asked=choice.queries_upstream)
        if visit is not None and visit.stop_reason:
            return INTERRUPTED if was_interrupted(visit) else 1
        if registry:
            print(f"{registry} registry records are not in a bundle; import their files there too", file=sys.stderr)
        if not writer.lines and not registry:
            print("nothing is exported: the store has none of the records", file=sys.stderr)
            return 1
        writer.finish()
        out.keep()
    print(f"{writer.lines} records exported", file=messages)
    return 1 if visit is not None and (registry or visit.tally.counts[VisitOutcome.COULD_NOT_VERIFY]) else 0


async def _export(context: CommandContext, choice: ExportChoice, writer: BundleWriter) -> tuple[Visit | None, int]:
    """Write the chosen records. Returns the visit of a list, and the number of registry records that are left out."""
    records = RecordWriter(writer)
    observers, stores = Observers(resolver=records), context.stores
    if choice.lists:
        async with stores.open_online(observers) if choice.queries_upstream else stores.open_sealed(observers) as parts:
            visit = await _export_lists(context.settings, parts, choice, records)
            return visit, records.registry
    elif choice.prefix is not None:
        async with stores.open_sealed(observers) as parts:
            with progress("exporting", None) as bar:
                await export_prefix(parts.cache, parts.resolver, choice.prefix, records, bar)
            return None, await parts.cache.count_registry(f"{choice.prefix.key}/")
    else:
        async with stores.open(read_only=True) as cache:
            stats = await cache.stats()
            with progress("exporting", None if stats.store is None else stats.store.entries) as bar:
                await export_all(cache, writer, bar)
            return None, 0 if stats.store is None else stats.store.registry


async def _export_lists(settings: Settings, parts: Core, choice: ExportChoice, records: RecordWriter) -> Visit:
    any_handle = settings.resolve == "any"
    names = UniqueNames(read_lists(choice.lists, column=choice.column, any_handle=any_handle))
    concurrency = settings.upstream_max_concurrency if choice.queries_upstream else 1
    visit = Visit(
        parts.cache,
        parts.resolver,
        clock=time.time,
        bounds=VisitBounds(concurrency, queries_upstream=choice.queries_upstream),
        after_each=records.write,
    )
    total = count_names(choice.lists, choice.column, any_handle)
    with progress("exporting", total) as bar, stop_visit_on_signals(visit):
        await visit.run(iter(names), bar)
    return visit


def _report_export(visit: Visit, messages: TextIO, *, asked: bool) -> None:
    if asked:
        print_tally(visit.tally, messages)
    else:
        for line in visit.tally.messages:
            print(line.removeprefix(f"{VisitOutcome.COULD_NOT_VERIFY.value}: "), file=sys.stderr)
        if missing := visit.tally.counts[VisitOutcome.COULD_NOT_VERIFY]:
            print(f"{missing} names are not in the store; --fetch fetches them from the upstream", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stop_reason:
        print(f"stopped: {visit.stop_reason}; the bundle is incomplete", file=sys.stderr)


class RecordWriter(ResolutionObserver):
    """Writes the records of a resolver's answers, each name once."""

    def __init__(self, writer: BundleWriter) -> None:
        self._writer = writer
        self._waiting: dict[str, Entry] = {}
        self._written: set[str] = set()
        #: Answers from registry records, which a bundle does not have.
        self.registry = 0

    def record_resolution(self, resolution: Resolution) -> None:
        """See ResolutionObserver. An observer must not raise, so `write` does the writing."""
        if resolution.origin in (Origin.LOCAL, Origin.REGISTRY):
            # The operator's own records, and those of agencies' files, are not answers of the upstream.
            self.registry += resolution.origin is Origin.REGISTRY
            return
        self._waiting[resolution.entry.key] = resolution.entry

    def write(self) -> None:
        """Write the records resolved since the last call. Raises OSError."""
        for key, entry in self._waiting.items():
            if key not in self._written:
                self._writer.add(entry)
                if len(self._written) >= MAX_REMEMBERED:
                    self._written.clear()
                self._written.add(key)
        self._waiting.clear()


async def export_prefix(
    cache: TieredStore, resolver: Resolver, prefix: HandleName, records: RecordWriter, bar: Bar
) -> None:
    """Write the records under a prefix, and those that their redirects need. `records` observes the resolver."""
    destinations = Destinations(resolver, PrefixChain(resolver), resolves="any")
    async for entry in cache.scan(f"{prefix.key}/"):
        resolution = Resolution(HandleName(entry.key), entry, Origin.HIT)
        records.record_resolution(resolution)
        if resolution.is_registered:
            await resolve_dependencies(destinations, resolution)
        records.write()
        bar.advance(1)


async def export_all(cache: TieredStore, writer: BundleWriter, bar: Bar) -> None:
    """Write every record."""
    async for entry in cache.scan():
        writer.add(entry)
        bar.advance(1)
