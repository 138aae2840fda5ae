"""What the commands that go through a list of names print, and how a signal ends them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from app.bulk.visit import Tally, Verdict, Visit

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: Exit status of a program that was interrupted (128 + SIGINT).
INTERRUPTED: Final = 130


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
