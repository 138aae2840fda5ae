"""Runs `doi-proxy cache warm`: fetches the names of lists, with the records that their redirects depend on."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import aclosing
from math import inf

from doi_proxy.features.feature import CommandContext
from doi_proxy.features.lists.batch import BatchOptions, build_batches
from doi_proxy.features.lists.command import ResolveChoice
from doi_proxy.features.lists.resolve_lists import ListFiles, count_items, flatten, read_inputs
from doi_proxy.features.lists.rows_file import show_verdicts
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.list_formats.body import require_files
from doi_proxy.list_formats.entries import WITHOUT_DOI
from doi_proxy.system.files import printable
from doi_proxy.system.progress import INTERRUPTED, progress, stop_on_signals


async def warm(context: CommandContext, choice: ResolveChoice, limit: int | None) -> int:
    """Fetch the names of lists that are not fresh in the store. Exit status 1 if one could not be verified.

    Raises ConfigurationError and StoreError.
    """
    require_files(choice.lists)
    settings, files, result = context.settings, ListFiles(), _Result()
    most = inf if limit is None else limit
    with stop_on_signals() as stop:
        options = BatchOptions(agency="none", for_metadata=True, max_fetched=most, is_stopped=stop.event.is_set)
        total = await count_items(choice)
        try:
            async with context.stores.open_online() as core:
                batches = build_batches(settings, core, concurrency=settings.upstream_max_concurrency)
                inputs = read_inputs(choice, files, stop.event)
                rows = batches.rows(flatten(inputs), options)
                with progress("warming", total) as bar:
                    async with aclosing(inputs), aclosing(rows):
                        async for row in rows:
                            result.add(files.take(), row)
                            bar.advance(1)
        except asyncio.CancelledError:
            # A second signal, or names under way that took too long.
            stop.event.set()
        finally:
            result.print()
    if stop.event.is_set() or not files.is_complete or result.verdicts.total() < files.names:
        reason = "by a signal" if stop.event.is_set() else "the limit is reached"
        print(f"stopped: {reason}; run the same command again to continue; it skips fresh names", file=sys.stderr)
    if stop.event.is_set():
        return INTERRUPTED
    if result.verdicts.total() == result.verdicts[Verdict.NOT_A_DOI]:
        print("the lists have no names", file=sys.stderr)
        return 1
    return 1 if result.has_failures else 0


class _Result:
    """The rows by verdict, and messages about the first of those that a person must look at."""

    def __init__(self) -> None:
        self.verdicts = Counter[Verdict]()
        self._stale = 0
        self._messages: list[str] = []
        self._shown = Counter[Verdict]()

    @property
    def has_failures(self) -> bool:
        """Whether a name could not be verified now."""
        return bool(self.verdicts[Verdict.UNVERIFIED] or self.verdicts[Verdict.RATE_LIMITED] or self._stale)

    def add(self, file: str, row: ListRow) -> None:
        """Count a row of a list."""
        self.verdicts[row.verdict] += 1
        self._stale += row.stale
        is_unread = row.verdict is Verdict.NOT_A_DOI and row.message != WITHOUT_DOI
        # At most 20 messages for each verdict.
        if (is_unread or row.stale or row.verdict in (Verdict.UNVERIFIED, Verdict.RATE_LIMITED)) and (
            self._shown[row.verdict] < 20
        ):
            self._shown[row.verdict] += 1
            place = f"{file}, line {row.line}: {row.input.strip()[:80]!r}" if is_unread else printable(row.input)
            self._messages.append(f"{row.verdict.value}: {place}: {row.message}")

    def print(self) -> None:
        """Print the messages to standard error, and the counts."""
        for message in self._messages:
            print(message, file=sys.stderr)
        if self.verdicts:
            print(show_verdicts(self.verdicts) + (f"; stale {self._stale:,}" if self._stale else ""), flush=True)
