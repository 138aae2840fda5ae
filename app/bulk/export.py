"""`doi-proxy cache export`: what the store holds, or the part that a list or a prefix names, as a bundle."""

from __future__ import annotations

import gzip
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self, TextIO, cast

from app.assembly import Observers, Parts
from app.bulk.lists import MOST_REMEMBERED, Distinct, read_lists
from app.bulk.progress import Bar, progress
from app.bulk.visit import Verdict, Visit, ask_what_it_needs
from app.bulk.warm import INTERRUPTED, count_names, report, stopped_by_signals, was_interrupted
from app.cache.bundle import BundleWriter
from app.cache.entry import Entry
from app.cli.cache_store import asking, opened, require_store, sealed
from app.doi.name import HandleName
from app.errors import ConfigurationError, DoiProxyError
from app.resolver.observer import NoObserver
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolution import Origin, Resolution
from app.settings import Settings

#: Standard output in place of a file.
STANDARD_OUTPUT: Final = "-"
#: Level 9 of gzip takes three times as long and gains under two percent.
_COMPRESSION: Final = 6
#: Records between two moves of the bar.
_STEP: Final = 200


@dataclass(frozen=True, slots=True)
class Choice:
    """What is exported: all, the names of a list, or those under a prefix; `asks` for those that are not fresh."""

    names_from: str | None = None
    prefix: HandleName | None = None
    asks: bool = False
    column: str | None = None


async def export(settings: Settings, choice: Choice, output: str) -> int:
    """Write a bundle. Exit status 1 where a name of the list is not in it. Raises ConfigurationError, StoreError."""
    if not choice.asks:
        require_store(settings)
    told = sys.stderr if output == STANDARD_OUTPUT else sys.stdout
    try:
        with Output(output) as out:
            writer = BundleWriter(out.file)
            visit = await _export(settings, choice, writer)
            if visit is not None:
                _report(visit, told, asked=choice.asks)
            if visit is not None and visit.stopped:
                return INTERRUPTED if was_interrupted(visit) else 1
            writer.finish()
            out.keep()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DoiProxyError(f"{output}: cannot be written: {error.strerror or error}") from error
    print(f"{writer.lines} records exported", file=told)
    return 1 if visit is not None and visit.tally.counts[Verdict.COULD_NOT_VERIFY] else 0


async def _export(settings: Settings, choice: Choice, writer: BundleWriter) -> Visit | None:
    """Write the chosen records; what became of the names, where they were those of a list."""
    bundle = _Once(writer)
    observers = Observers(resolver=bundle)
    if choice.names_from is not None:
        async with asking(settings, observers) if choice.asks else sealed(settings, observers) as parts:
            return await _export_list(parts, choice, choice.names_from, bundle)
    elif choice.prefix is not None:
        async with sealed(settings, observers) as parts:
            await _export_prefix(parts, choice.prefix, bundle)
    else:
        await _export_all(settings, writer)
    return None


class _Once(NoObserver):
    """Writes what a resolver answers with, each name once."""

    def __init__(self, writer: BundleWriter) -> None:
        self._writer = writer
        self._waiting: dict[str, Entry] = {}
        self._written: set[str] = set()

    def resolved(self, resolution: Resolution) -> None:
        """See Observer; nothing is written yet, since that may raise."""
        self._waiting[resolution.entry.key] = resolution.entry

    def write(self) -> None:
        """Write what was answered since the last time. Raises OSError."""
        for key, entry in self._waiting.items():
            if key not in self._written:
                self._writer.add(entry)
                if len(self._written) >= MOST_REMEMBERED:
                    self._written.clear()
                self._written.add(key)
        self._waiting.clear()


async def _export_list(parts: Parts, choice: Choice, path: str, bundle: _Once) -> Visit:
    any_handle = parts.settings.resolve == "any"
    names = Distinct(read_lists([path], column=choice.column, any_handle=any_handle))
    at_once = parts.settings.upstream_max_concurrency if choice.asks else 1
    visit = Visit(parts.cache, parts.resolver, clock=time.time, at_once=at_once, asks=choice.asks, visited=bundle.write)
    total = count_names([path], choice.column, any_handle)
    with progress("exporting", total) as bar, stopped_by_signals(visit):
        await visit.run(iter(names), bar)
    return visit


def _report(visit: Visit, told: TextIO, *, asked: bool) -> None:
    if asked:
        report(visit.tally, told)
    else:
        for line in visit.tally.named:
            print(line.removeprefix(f"{Verdict.COULD_NOT_VERIFY.value}: "), file=sys.stderr)
        if missing := visit.tally.counts[Verdict.COULD_NOT_VERIFY]:
            print(f"{missing} names are not in the store (--ask asks the upstream for them)", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stopped:
        print(f"stopped: {visit.stopped}; the bundle is not whole", file=sys.stderr)


async def _export_prefix(parts: Parts, prefix: HandleName, bundle: _Once) -> None:
    prefixes = PrefixChain()
    with progress("exporting", None) as bar:
        steps = _Steps(bar)
        async for entry in parts.cache.scan(f"{prefix.key}/"):
            resolution = Resolution(HandleName(entry.key), entry, Origin.HIT)
            bundle.resolved(resolution)
            if resolution.found:
                await ask_what_it_needs(parts.resolver, prefixes, resolution)
            bundle.write()
            steps.one()


async def _export_all(settings: Settings, writer: BundleWriter) -> None:
    async with opened(settings, read_only=True) as cache:
        stats = await cache.stats()
        with progress("exporting", None if stats.store is None else stats.store.entries) as bar:
            steps = _Steps(bar)
            async for entry in cache.scan():
                writer.add(entry)
                steps.one()


class _Steps:
    """Moves a bar now and then: a move takes longer than a record."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._done = 0

    def one(self) -> None:
        """One more record is done."""
        self._done += 1
        if self._done % _STEP == 0:
            self._bar.advance(_STEP)


class Output:
    """A file that appears under its name when it is whole; `-` is standard output, `.gz` at the end compresses."""

    def __init__(self, path: str) -> None:
        """Raises ConfigurationError where it cannot be written."""
        self._path = Path(path)
        self._is_plain = path != STANDARD_OUTPUT and (not self._path.exists() or self._path.is_file())
        self._partial = self._path.with_name(self._path.name + ".partial") if self._is_plain else self._path
        self._kept = False
        self._open = ExitStack()
        self.file: BinaryIO = sys.stdout.buffer
        try:
            if path != STANDARD_OUTPUT:
                self.file = self._open.enter_context(self._create())
        except OSError as error:
            raise ConfigurationError(f"--output {path}: cannot be written: {error.strerror or error}") from error
        if path.endswith(".gz"):
            packed = gzip.GzipFile("", "wb", _COMPRESSION, self.file, mtime=0)
            self.file = cast(BinaryIO, self._open.enter_context(packed))

    def _create(self) -> BinaryIO:
        if not self._is_plain:
            return self._path.open("wb")
        # For its owner alone, and through no link that another user left.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self._partial, flags, 0o600), "wb")

    def keep(self) -> None:
        """The content is whole."""
        self._kept = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._close()
            if self._kept and self._is_plain:
                self._partial.replace(self._path)
        finally:
            if self._is_plain:
                self._partial.unlink(missing_ok=True)

    def _close(self) -> None:
        try:
            self.file.flush()
        except BrokenPipeError:
            # What is still buffered has nowhere to go, also when the interpreter flushes it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        finally:
            self._open.close()
