"""Progress bars for long commands, on standard error if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

#: Seconds over which the speed is measured, to estimate the remaining time.
_SPEED_PERIOD: Final = 30.0


class Bar(Protocol):
    """A progress bar."""

    def advance(self, done: float) -> None:
        """Advance by this number of items or bytes."""

    def describe(self, text: str) -> None:
        """Replace the label."""


class NoBar:
    """A progress bar that is not shown."""

    def advance(self, done: float) -> None:
        """Do nothing."""

    def describe(self, text: str) -> None:
        """Do nothing."""


class _RichBar:
    """A progress bar of the library rich."""

    def __init__(self, advance: Callable[[float], None], describe: Callable[[str], None]) -> None:
        self._advance = advance
        self._describe = describe

    def advance(self, done: float) -> None:
        """See Bar."""
        self._advance(done)

    def describe(self, text: str) -> None:
        """See Bar."""
        self._describe(text)


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(label: str, total: float | None, *, in_bytes: bool = False, shown: bool = True) -> Iterator[Bar]:
    """Show a bar while the body runs. Without a total, it shows the count and the elapsed time."""
    if not (shown and shows_progress()):
        yield NoBar()
        return
    # Imported only if it is shown: rich takes 100 ms to import.
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
    # Standard output may be a bundle.
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False, speed_estimate_period=_SPEED_PERIOD)
    with bar:
        task = bar.add_task(label, total=total)
        yield _RichBar(lambda done: bar.advance(task, done), lambda text: bar.update(task, description=text))
