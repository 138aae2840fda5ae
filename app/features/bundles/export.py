"""Writes records of the cache to a bundle: all records, or those under a prefix."""

from __future__ import annotations

import gzip
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.errors import ConfigurationError
from app.features.bundles.bundle import BundleWriter
from app.features.cache_commands.lists import MAX_REMEMBERED
from app.features.cache_commands.visit import resolve_dependencies
from app.features.progress import Bar
from app.resolver.destination import Destinations
from app.resolver.observer import NoResolutionObserver
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolution import Origin, Resolution
from app.resolver.resolver import Resolver

#: Standard output in place of a file.
STANDARD_OUTPUT: Final = "-"
#: Level of gzip. Level 9 takes three times as long, and its output is less than 2 % smaller.
_COMPRESSION: Final = 6
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
    destinations = Destinations(resolver, PrefixChain(), resolves="any")
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


class Output:
    """A file that gets its name when it is complete. `-` is standard output. A name with `.gz` is compressed."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ConfigurationError if it cannot be written."""
        self._path = Path(path)
        self._is_regular_file = path != STANDARD_OUTPUT and (not self._path.exists() or self._path.is_file())
        self._partial = self._path.with_name(self._path.name + ".partial") if self._is_regular_file else self._path
        self._is_complete = False
        self._files = ExitStack()
        self.file: BinaryIO = sys.stdout.buffer
        try:
            if path != STANDARD_OUTPUT:
                self.file = self._files.enter_context(self._create())
        except OSError as error:
            raise ConfigurationError(f"--output {path}: cannot be written: {error.strerror or error}") from error
        if path.endswith(".gz"):
            packed = gzip.GzipFile("", "wb", _COMPRESSION, self.file, mtime=0)
            self.file = cast(BinaryIO, self._files.enter_context(packed))

    def _create(self) -> BinaryIO:
        if not self._is_regular_file:
            return self._path.open("wb")
        # Only the owner can read it. A link that another user left is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self._partial, flags, 0o600), "wb")

    def keep(self) -> None:
        """Keep the file at the end, because its content is complete."""
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close()
            if self._is_complete and self._is_regular_file:
                self._partial.replace(self._path)
        finally:
            if self._is_regular_file:
                self._partial.unlink(missing_ok=True)

    def _close(self) -> None:
        try:
            self.file.flush()
        except BrokenPipeError:
            # The reader is gone. The interpreter flushes the rest of the buffer at its end, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        finally:
            self._files.close()
