"""Writes records of the cache to a bundle: all records, or those under a prefix."""

from __future__ import annotations

from typing import Final

from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.features.bundles.bundle import BundleWriter
from app.features.cache_commands.lists import MAX_REMEMBERED
from app.features.cache_commands.visit import resolve_dependencies
from app.features.progress import Bar
from app.resolver.destination import Destinations
from app.resolver.observer import NoResolutionObserver
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolution import Origin, Resolution
from app.resolver.resolver import Resolver

#: Records between two updates of the progress bar.
_STEP: Final = 200


class RecordWriter(NoResolutionObserver):
    """Writes the records of a resolver's answers, each name once."""

    def __init__(self, writer: BundleWriter) -> None:
        self._writer = writer
        self._waiting: dict[str, Entry] = {}
        self._written: set[str] = set()

    def record_resolution(self, resolution: Resolution) -> None:
        """See ResolutionObserver. An observer must not raise, so `write` does the writing."""
        if resolution.origin in (Origin.LOCAL, Origin.REGISTRY):
            return  # the operator's own records, and those of agencies' files, are not answers of the upstream
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
    steps = _BarSteps(bar)
    async for entry in cache.scan(f"{prefix.key}/"):
        resolution = Resolution(HandleName(entry.key), entry, Origin.HIT)
        records.record_resolution(resolution)
        if resolution.is_registered:
            await resolve_dependencies(destinations, resolution)
        records.write()
        steps.one()


async def export_all(cache: TieredStore, writer: BundleWriter, bar: Bar) -> None:
    """Write every record."""
    steps = _BarSteps(bar)
    async for entry in cache.scan():
        writer.add(entry)
        steps.one()


class _BarSteps:
    """Advances a bar in steps, because one update takes longer than one record."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._done = 0

    def one(self) -> None:
        """Count one record."""
        self._done += 1
        if self._done % _STEP == 0:
            self._bar.advance(_STEP)
