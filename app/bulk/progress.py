"""How far a long command is: a bar on standard error, where that is a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

#: Seconds over which the speed is measured that the remaining time is told from.
_SPEED_PERIOD: Final = 30.0


class Bar(Protocol):
    """Told how far the work is."""

    def advance(self, done: float) -> None:
        """So many items (or bytes) more are done."""


class NoBar:
    """Shows nothing."""

    def advance(self, done: float) -> None:
        """Nothing."""


class _Shown:
    """A bar of rich."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance

    def advance(self, done: float) -> None:
        """See Bar."""
        self._advance(done)


def shows_progress() -> bool:
    """Whether a bar would be seen."""
    return sys.stderr.isatty()


@contextmanager
def progress(label: str, total: float | None, *, in_bytes: bool = False, shown: bool = True) -> Iterator[Bar]:
    """A bar while the body runs; without a total it shows the count and the time that went by."""
    if not (shown and shows_progress()):
        yield NoBar()
        return
    # Imported where it is wanted: rich takes 100 ms.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    # Standard output may be carrying a bundle.
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False, speed_estimate_period=_SPEED_PERIOD)
    with bar:
        task = bar.add_task(label, total=total)
        yield _Shown(lambda done: bar.advance(task, done))
