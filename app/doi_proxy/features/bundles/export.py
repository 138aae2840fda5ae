"""`doi-proxy cache export`: writes all records, those of lists, or those under a prefix to a bundle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from doi_names.errors import InvalidName
from doi_names.name import DOIName, HandleName
from doi_names.presentation import read_typed_name
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import FAILURES, CouldNotVerify
from doi_proxy.features.bundles.bundle import BundleWriter, OutputFile
from doi_proxy.features.feature import CommandContext, Observers
from doi_proxy.list_formats.body import ListSource, read_items, require_files
from doi_proxy.list_formats.entries import NO_DOI, Item, ListItem
from doi_proxy.resolver.destination import DestinationQuery, Destinations
from doi_proxy.resolver.resolution import ORDINARY, Negotiation, Origin, Resolution, ResolutionObserver
from doi_proxy.system.files import STANDARD_OUTPUT
from doi_proxy.system.progress import Bar, progress


@dataclass(frozen=True, slots=True)
class ExportChoice:
    """The records to export: all, the names of lists, or those under a prefix."""

    lists: Sequence[str] = ()
    prefix: HandleName | None = None
    column: str | None = None


async def export(context: CommandContext, choice: ExportChoice, output: str) -> int:
    """Write a bundle. Exit status 1 if a name of the lists is not in it. Without any records, no file is written.

    Raises ConfigurationError and StoreError.
    """
    context.stores.require()
    require_files(choice.lists)
    messages = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    with OutputFile(output) as out:
        writer = BundleWriter(out.file)
        missing, registry = await _export(context, choice, writer)
        if registry:
            print(f"{registry} registry records are not in a bundle; import their files there too", file=sys.stderr)
        if not writer.lines and not registry:
            print("nothing is exported: the store has none of the records", file=sys.stderr)
            return 1
        writer.finish()
        out.keep()
    print(f"{writer.lines} records exported", file=messages)
    return 1 if missing or (choice.lists and registry) else 0


async def _export(context: CommandContext, choice: ExportChoice, writer: BundleWriter) -> tuple[int, int]:
    """Write the chosen records. Returns the names that have none, and the registry records that are left out."""
    stores, records = context.stores, RecordWriter(writer)
    if not choice.lists and choice.prefix is None:
        async with stores.open(read_only=True) as cache:
            stats = await cache.stats()
            with progress("exporting", None if stats.store is None else stats.store.entries) as bar:
                await export_all(cache, writer, bar)
            return 0, 0 if stats.store is None else stats.store.registry
    async with stores.open_sealed(Observers(resolver=records)) as core:
        if choice.prefix is not None:
            with progress("exporting", None) as bar:
                await export_prefix(core.destinations, choice.prefix, records, bar)
            return 0, await core.cache.count_registry(f"{choice.prefix.key}/")
        with progress("exporting", None) as bar:
            found = await export_lists(core.destinations, choice, records, bar)
    for message in found.messages:
        print(message, file=sys.stderr)
    if found.unread:
        print(f"not names: {found.unread}", file=sys.stderr)
    if found.missing:
        print(f"{found.missing} names are not in the store; doi-proxy cache warm fetches them", file=sys.stderr)
    return found.missing, records.registry


class SeenKeys(set[str]):
    """Keys of names, to leave out what is repeated."""

    def add_new(self, key: str) -> bool:
        """Add a key. Returns whether it is new."""
        if key in self:
            return False
        # A million keys take about 120 MB. Then the memory starts empty again.
        if len(self) >= 1_000_000:
            self.clear()
        self.add(key)
        return True


class RecordWriter(ResolutionObserver):
    """Writes the records of a resolver's answers, each name once."""

    def __init__(self, writer: BundleWriter) -> None:
        self._writer = writer
        self._waiting: dict[str, Entry] = {}
        self._written = SeenKeys()
        self._left_out = SeenKeys()
        #: Answers from registry records, which a bundle does not have.
        self.registry = 0

    def record_resolution(self, resolution: Resolution) -> None:
        """See ResolutionObserver. An observer must not raise, so `write` does the writing."""
        entry = resolution.entry
        if resolution.origin is Origin.REGISTRY:
            self.registry += self._left_out.add_new(entry.key)
        # The operator's own records are not answers of the upstream either.
        elif resolution.origin is not Origin.LOCAL:
            self._waiting[entry.key] = entry

    def write(self) -> None:
        """Write the records resolved since the last call. Raises OSError."""
        for key, entry in self._waiting.items():
            if self._written.add_new(key):
                self._writer.add(entry)
        self._waiting.clear()


class ExportedLists:
    """The items of lists that are not in the bundle: how many, and messages about the first."""

    def __init__(self) -> None:
        self.missing = self.unread = 0
        self.messages: list[str] = []

    def add_missing(self, name: HandleName) -> None:
        """The store does not have a name."""
        self.missing += 1
        if self.missing <= 20:
            self.messages.append(f"{name.text}: not in the store")

    def add_unread(self, path: str, item: Item, reason: str) -> None:
        """An item is not a name."""
        self.unread += 1
        if self.unread <= 20:
            self.messages.append(f"not_a_doi: {path}, line {item.line}: {item.text.strip()[:80]!r}: {reason}")


async def export_lists(
    destinations: Destinations, choice: ExportChoice, records: RecordWriter, bar: Bar
) -> ExportedLists:
    """Write the records of the names of lists, and those that their redirects need. `records` observes the resolver."""
    found, seen = ExportedLists(), SeenKeys()
    for path in choice.lists:
        for item in read_items(ListSource(path, column=choice.column)):
            bar.advance(1)
            try:
                name = _read_name(item, destinations)
            except InvalidName as error:
                found.add_unread(path, item, error.message)
                continue
            if name is None or not seen.add_new(name.key):
                continue
            try:
                await _resolve_dependencies(destinations, await destinations.resolver.resolve(name))
            except CouldNotVerify:
                found.add_missing(name)
            records.write()
    return found


def _read_name(item: Item, destinations: Destinations) -> HandleName | None:
    """The name of an item. None for an entry without a DOI. Raises InvalidName."""
    if not isinstance(item, ListItem):
        if item.reason == NO_DOI:
            return None
        raise InvalidName(item.message)
    name = read_typed_name(item.text) if item.found is None else item.found.name
    return name if destinations.looks_up(name) else DOIName.parse(name.text)


async def export_prefix(destinations: Destinations, prefix: HandleName, records: RecordWriter, bar: Bar) -> None:
    """Write the records under a prefix, and those that their redirects need. `records` observes the resolver."""
    async for entry in destinations.resolver.cache.scan(f"{prefix.key}/"):
        resolution = Resolution(HandleName(entry.key), entry, Origin.HIT)
        records.record_resolution(resolution)
        await _resolve_dependencies(destinations, resolution)
        records.write()
        bar.advance(1)


async def _resolve_dependencies(destinations: Destinations, resolution: Resolution) -> None:
    """Resolve what the redirect of a name needs: aliases, included locations, its prefix. The store may not have it."""
    if resolution.is_registered:
        # A request for metadata makes the locations of the prefix count too.
        query = DestinationQuery(resolution.name, negotiation=Negotiation(conneg=True))
        with suppress(*FAILURES):
            await destinations.complete(resolution, query, ORDINARY)


async def export_all(cache: TieredStore, writer: BundleWriter, bar: Bar) -> None:
    """Write every record."""
    async for entry in cache.scan():
        writer.add(entry)
        bar.advance(1)
