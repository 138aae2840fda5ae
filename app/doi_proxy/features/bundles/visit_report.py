"""The report of a command on a list of names, and its end by a signal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from doi_proxy.features.bundles.visit import Tally, Visit, VisitOutcome
from doi_proxy.system.interruption import SIGNALS, stop_on_signals


@contextmanager
def stop_visit_on_signals(visit: Visit) -> Iterator[None]:
    """Stop a visit as `stop_on_signals` does. The caller reports what was visited."""
    with stop_on_signals(lambda number: visit.stop(_reason(number))):
        try:
            yield
        except asyncio.CancelledError:
            if not was_interrupted(visit):
                raise


def was_interrupted(visit: Visit) -> bool:
    """Whether a signal stopped the visit."""
    return visit.stop_reason in map(_reason, SIGNALS)


def _reason(number: signal.Signals) -> str:
    return f"by {number.name}"


def print_tally(tally: Tally, file: TextIO) -> None:
    """Print the counts to `file`, and the messages to standard error."""
    for line in tally.messages:
        print(line, file=sys.stderr)
    print(", ".join(f"{outcome.value} {tally.counts[outcome]}" for outcome in VisitOutcome), file=file)
