"""How far a long command has come: one line on standard error, drawn again a few times a second."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

#: Seconds between two updates of the line.
INTERVAL: Final = 0.25
_CLEAR_LINE: Final = "\r\x1b[K"
_MEGABYTE: Final = 1_000_000


class ProgressLine:
    """A line that replaces itself. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._last_draw = clock()

    def draw(self, write: Callable[[float], str]) -> None:
        """Draw the line if it is time. `write` returns its text, given the seconds since the start."""
        now = self._clock()
        if now - self._last_draw >= INTERVAL:
            self._last_draw = now
            self.replace(write(now - self._began))

    def replace(self, text: str) -> None:
        """Draw the line now."""
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(_CLEAR_LINE + text[:width])
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.replace("")


class Bar(Protocol):
    """The progress of a command."""

    def advance(self, done: float) -> None:
        """Advance by this number of items or bytes."""

    def describe(self, text: str) -> None:
        """Replace the label."""


class NoBar:
    """Progress that is not shown."""

    def advance(self, done: float) -> None:
        """Do nothing."""

    def describe(self, text: str) -> None:
        """Do nothing."""


class LineBar:
    """Progress as a line: the label, the count, the pace, and the time that is left if the total is known."""

    def __init__(self, label: str, total: float | None, clock: Callable[[], float], *, in_bytes: bool) -> None:
        self._label = label
        self._total = total
        self._in_bytes = in_bytes
        self._done = 0.0
        self._line = ProgressLine(clock)
        self._line.replace(label)

    def advance(self, done: float) -> None:
        """See Bar."""
        self._done += done
        self._line.draw(self._write)

    def describe(self, text: str) -> None:
        """See Bar."""
        self._label = text

    def clear(self) -> None:
        """Remove the line."""
        self._line.clear()

    def _write(self, seconds: float) -> str:
        total, pace = self._total, self._done / seconds
        parts = [self._show(self._done) if total is None else f"{self._show(self._done)} of {self._show(total)}"]
        parts.append(f"{self._show(pace)} a second")
        if total is not None and pace:
            parts.append(f"{show_duration(max(0.0, total - self._done) / pace)} left")
        return f"{self._label}: {'; '.join(parts)}"

    def _show(self, number: float) -> str:
        return f"{number / _MEGABYTE:,.1f} MB" if self._in_bytes else f"{number:,.0f}"


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(label: str, total: float | None, *, in_bytes: bool = False) -> Iterator[Bar]:
    """Show the progress while the body runs, if standard error is a terminal."""
    if not shows_progress():
        yield NoBar()
        return
    bar = LineBar(label, total, time.monotonic, in_bytes=in_bytes)
    try:
        yield bar
    finally:
        bar.clear()


def show_duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
