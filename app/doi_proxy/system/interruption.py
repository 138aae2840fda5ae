"""The end of a long command by SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
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

    def __init__(self, end_input: Callable[[signal.Signals], None] | None = None) -> None:
        #: Set at the first signal, which `end_input` gets too.
        self.event = asyncio.Event()
        self._end_input = end_input
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, number: signal.Signals) -> None:
        """A signal has arrived."""
        if self._timer is not None:
            self._cancel()
            return
        # On a terminal, the progress line and "^C" come before it.
        start = "\n" if sys.stderr.isatty() else ""
        print(f"{start}finishing the names under way; a second signal stops immediately", file=sys.stderr)
        self._timer = asyncio.get_running_loop().call_later(GRACE, self._cancel)
        self.event.set()
        if self._end_input is not None:
            self._end_input(number)

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
def stop_on_signals(end_input: Callable[[signal.Signals], None] | None = None) -> Iterator[Stop]:
    """Stop GRACE after SIGINT or SIGTERM, or when the names under way are done; immediately on a second signal."""
    loop, stop = asyncio.get_running_loop(), Stop(end_input)
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.handle, number)
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
