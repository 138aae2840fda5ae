"""How far a long command has come: one line on standard error, drawn again a few times a second."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Exit status of a program that was interrupted (128 + SIGINT).
INTERRUPTED: Final = 130
#: The signals that end a command.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: Seconds after a signal in which the names under way are finished.
GRACE: Final = 1.0


class Stop:
    """Ends the input at the first signal, and cancels the work GRACE later or at the second signal."""

    def __init__(self) -> None:
        #: Set at the first signal.
        self.event = asyncio.Event()
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None

    def handle(self) -> None:
        """A signal has arrived."""
        if self._timer is not None:
            self._cancel()
            return
        # On a terminal, the progress line and "^C" come before it.
        start = "\n" if sys.stderr.isatty() else ""
        print(f"{start}finishing the names under way; a second signal stops immediately", file=sys.stderr)
        self._timer = asyncio.get_running_loop().call_later(GRACE, self._cancel)
        self.event.set()

    def end(self) -> None:
        """Handle no more signals, and cancel nothing."""
        if self._timer is not None:
            self._timer.cancel()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _cancel(self) -> None:
        """Cancel the work. From now on, a signal ends the process, even if a store is slow to close."""
        self.end()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if self._task is not None:
            self._task.cancel()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Stop GRACE after SIGINT or SIGTERM, or when the names under way are done; immediately on a second signal."""
    loop, stop = asyncio.get_running_loop(), Stop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.handle)
    try:
        yield stop
    finally:
        stop.end()


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt at the first SIGINT or SIGTERM, also in a read that blocks. The second ends the process.

    asyncio.run would only cancel its task at SIGINT. Only the main thread of a process gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def interrupt(*_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)


def run_job(job: Coroutine[Any, Any, int]) -> int:
    """Run a job that can be run again after SIGINT or SIGTERM. Returns its exit status."""

    async def run() -> int:
        try:
            status = await job
        except (asyncio.CancelledError, KeyboardInterrupt):
            print("interrupted; run the same command again", file=sys.stderr)
            status = INTERRUPTED
        if status == INTERRUPTED:
            # asyncio.run would wait for threads that cannot be stopped, such as one that looks up a host.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        return status

    interrupt_on_signals()
    return asyncio.run(run())


#: Seconds between two updates of the line.
INTERVAL: Final = 0.25


class Bar:
    """The progress of a command. This one is not shown."""

    def advance(self, done: float) -> None:
        """Advance by this number of items or bytes."""

    def describe(self, write: Callable[[], str]) -> None:
        """Replace what writes the text after the numbers, each time that they are drawn."""


class LineBar(Bar):
    """Progress as a line that replaces itself: a label, the count, the pace, the time that is left, and a text.

    `before` was done by earlier runs. The rest is expected to be as slow as what this run has done; without a total, no
    time is shown. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        label: str,
        total: float | None,
        clock: Callable[[], float],
        *,
        in_bytes: bool = False,
        before: float = 0.0,
    ) -> None:
        self._label = label
        self._total = total
        self._clock = clock
        self._in_bytes = in_bytes
        self._before = before
        self._done = 0.0
        self._write_text: Callable[[], str] = str
        self._began = self._last_draw = clock()
        self._replace(label)

    def advance(self, done: float) -> None:
        """See Bar. Draws the line if it is time."""
        self._done += done
        now = self._clock()
        if now - self._last_draw >= INTERVAL:
            self._last_draw = now
            self._replace(self._write(now - self._began))

    def describe(self, write: Callable[[], str]) -> None:
        """See Bar."""
        self._write_text = write

    def clear(self) -> None:
        """Remove the line."""
        self._replace("")

    def _replace(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r\x1b[K" + text[:width])
        sys.stderr.flush()

    def _write(self, seconds: float) -> str:
        done = self._before + self._done
        count = self._show(done, 0) if self._total is None else f"{self._show(done, 0)} of {self._show(self._total, 0)}"
        parts = [f"{self._label}: {count}", f"{self._show(self._done / seconds, 1)} a second"]
        if self._total is not None and self._done:
            parts.append(f"{show_duration(max(0.0, self._total - done) * seconds / self._done)} left")
        return "; ".join(filter(None, [*parts, self._write_text()]))

    def _show(self, number: float, decimals: int) -> str:
        return f"{number / 1_000_000:,.1f} MB" if self._in_bytes else f"{number:,.{decimals}f}"


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress(label: str, total: float | None, *, in_bytes: bool = False, before: float = 0.0) -> Iterator[Bar]:
    """Show the progress while the body runs, if standard error is a terminal."""
    if not shows_progress():
        yield Bar()
        return
    bar = LineBar(label, total, time.monotonic, in_bytes=in_bytes, before=before)
    try:
        yield bar
    finally:
        bar.clear()


def show_duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
