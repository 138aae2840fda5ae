"""`doi-proxy cache warm`: asks for the names of a list, as a bulk job, so that they are there when people ask."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from app.bulk.lists import STANDARD_INPUT, Distinct, read_lists
from app.bulk.progress import progress, shows_progress
from app.bulk.visit import Tally, Verdict, Visit
from app.cli.cache_store import asking
from app.settings import Settings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: Exit status of a program that was interrupted (128 + SIGINT).
INTERRUPTED: Final = 130


async def warm(settings: Settings, lists: Sequence[str], *, column: str | None, limit: int | None) -> int:
    """Ask for the names of lists that are not fresh in the store. Exit status 1 if any could not be verified."""
    any_handle = settings.resolve == "any"
    names = Distinct(read_lists(lists, column=column, any_handle=any_handle))
    total = count_names(lists, column, any_handle)
    async with asking(settings) as parts:
        visit = Visit(
            parts.cache, parts.resolver, clock=time.time, at_once=settings.upstream_max_concurrency, limit=limit
        )
        with progress("warming", total) as bar, stopped_by_signals(visit):
            await visit.run(iter(names), bar)
    report(visit.tally, sys.stdout)
    if names.repeated:
        print(f"{names.repeated} names were given again", file=sys.stderr)
    if visit.list_failure is not None:
        raise visit.list_failure
    if visit.stopped:
        print(f"stopped: {visit.stopped}; the same command goes on: fresh names are skipped", file=sys.stderr)
    if was_interrupted(visit):
        return INTERRUPTED
    return 1 if visit.tally.failed() else 0


def count_names(lists: Sequence[str], column: str | None, any_handle: bool) -> int | None:
    """How many names lists hold, where somebody sees that and they can be read twice."""
    if STANDARD_INPUT in lists or not shows_progress():
        return None
    return sum(1 for _ in Distinct(read_lists(lists, column=column, any_handle=any_handle)))


@contextmanager
def stopped_by_signals(visit: Visit) -> Iterator[None]:
    """The first SIGINT or SIGTERM lets the names under way be finished; the second one ends the program at once."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        print("finishing what is under way; once more ends at once", file=sys.stderr, flush=True)
        visit.stop(_by(number))
        loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def was_interrupted(visit: Visit) -> bool:
    """Whether a signal ended the visit."""
    return visit.stopped in map(_by, _SIGNALS)


def _by(number: signal.Signals) -> str:
    return f"by {number.name}"


def report(tally: Tally, file: TextIO) -> None:
    """The counts to `file`, the names to look at to standard error."""
    for line in tally.named:
        print(line, file=sys.stderr)
    print(", ".join(f"{verdict.value} {tally.counts[verdict]}" for verdict in Verdict), file=file)
