"""How far a long command has come: one line on standard error, drawn again a few times a second."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Seconds between two updates of the line.
INTERVAL: Final = 0.25
_CLEAR_LINE: Final = "\r\x1b[K"
_MEGABYTE: Final = 1_000_000


#: Returns the seconds that are left, None if they cannot be estimated. The arguments are the items or bytes of this run
#: that are done, those that are left, and the seconds that this run took.
Estimate = Callable[[float, float, float], float | None]


class Bar:
    """The progress of a command. This one is not shown."""

    def advance(self, done: float) -> None:
        """Advance by this number of items or bytes."""

    def describe(self, text: str) -> None:
        """Replace the text after the numbers."""


def assume_pace(done: float, left: float, seconds: float) -> float | None:
    """The seconds that are left if the rest is as slow as what is done."""
    return left * seconds / done if done else None


class LineBar(Bar):
    """Progress as a line that replaces itself: a label, the count, the pace, the time that is left, and a text.

    `before` was done by earlier runs. Without a total, no time is estimated. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        label: str,
        total: float | None,
        clock: Callable[[], float],
        *,
        in_bytes: bool = False,
        before: float = 0.0,
        estimate: Estimate = assume_pace,
    ) -> None:
        self._label = label
        self._total = total
        self._clock = clock
        self._in_bytes = in_bytes
        self._before = before
        self._estimate = estimate
        self._done = 0.0
        self._text = ""
        self._began = self._last_draw = clock()
        self._replace(label)

    def advance(self, done: float) -> None:
        """See Bar. Draws the line if it is time."""
        self._done += done
        now = self._clock()
        if now - self._last_draw >= INTERVAL:
            self._last_draw = now
            self._replace(self._write(now - self._began))

    def describe(self, text: str) -> None:
        """See Bar."""
        self._text = text

    def clear(self) -> None:
        """Remove the line."""
        self._replace("")

    def _replace(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(_CLEAR_LINE + text[:width])
        sys.stderr.flush()

    def _write(self, seconds: float) -> str:
        done = self._before + self._done
        count = self._show(done, 0) if self._total is None else f"{self._show(done, 0)} of {self._show(self._total, 0)}"
        parts = [f"{self._label}: {count}", f"{self._show(self._done / seconds, 1)} a second"]
        if self._total is not None:
            left = self._estimate(self._done, max(0.0, self._total - done), seconds)
            parts.append("" if left is None else f"{show_duration(left)} left")
        return "; ".join(filter(None, [*parts, self._text]))

    def _show(self, number: float, decimals: int) -> str:
        return f"{number / _MEGABYTE:,.1f} MB" if self._in_bytes else f"{number:,.{decimals}f}"


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(
    label: str,
    total: float | None,
    *,
    in_bytes: bool = False,
    before: float = 0.0,
    estimate: Estimate = assume_pace,
) -> Iterator[Bar]:
    """Show the progress while the body runs, if standard error is a terminal."""
    if not shows_progress():
        yield Bar()
        return
    bar = LineBar(label, total, time.monotonic, in_bytes=in_bytes, before=before, estimate=estimate)
    try:
        yield bar
    finally:
        bar.clear()


def show_duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
