"""The report of a command on a list of names, and its end by a signal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from app.features.cache_commands.visit import Tally, Visit, VisitOutcome

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(visit: Visit) -> Iterator[None]:
    """Stop the visit after the names under way on SIGINT or SIGTERM. A second signal ends the program immediately."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        print("finishing the names under way; a second signal stops immediately", file=sys.stderr, flush=True)
        visit.stop(_reason(number))
        loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def was_interrupted(visit: Visit) -> bool:
    """Whether a signal stopped the visit."""
    return visit.stop_reason in map(_reason, _SIGNALS)


def _reason(number: signal.Signals) -> str:
    return f"by {number.name}"


def print_tally(tally: Tally, file: TextIO) -> None:
    """Print the counts to `file`, and the messages to standard error."""
    for line in tally.messages:
        print(line, file=sys.stderr)
    print(", ".join(f"{outcome.value} {tally.counts[outcome]}" for outcome in VisitOutcome), file=file)
