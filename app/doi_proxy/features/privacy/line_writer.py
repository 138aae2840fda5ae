"""Writes the lines of the access log in a thread. A request never waits for the disk or for the reader of a pipe."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from doi_proxy.features.privacy.line import LogLine
from doi_proxy.system.background import Service
from doi_proxy.system.meter import CounterData

log = logging.getLogger(__name__)

#: Bytes of lines that can wait: about 16,000 lines. Others are lost.
MAX_WAITING: Final = 8 * 2**20
#: Seconds for which the thread gathers lines, unless the last ones were written longer ago: a line that comes alone is
#: written at once. Formatted one after the other, a line takes a third of the time that it
#: takes between two requests, when it finds the processor's caches full of something else.
GATHER: Final = 0.01
#: Bytes of one write, of whole lines. To a pipe it is at most 4096 bytes (POSIX, PIPE_BUF), so lines of several
#: processes do not mix. The thread keeps the interpreter's lock while it formats them: 0.5 ms for a file.
_PIPE_BYTES: Final = 4_096
_FILE_BYTES: Final = 16_384
#: Seconds that the end of the process waits for a reader that stands still.
CLOSE_TIMEOUT: Final = 2.0
LOST_LINES: Final = CounterData(
    "access_log_lost_lines",
    "Lines of the access log that were not written: standard output was full, closed or not read in time, or the "
    "program has a fault, which the log names.",
)


class LineWriter:
    """Writes lines to a file descriptor, in their order. A line that cannot be written is counted and lost."""

    def __init__(self, descriptor: int, form: Callable[[LogLine], bytes], *, max_waiting: int = MAX_WAITING) -> None:
        """`max_waiting` bounds the bytes of lines that wait."""
        self._descriptor = descriptor
        self._form = form
        self._max_waiting = max_waiting
        #: None ends the thread.
        self._lines: SimpleQueue[LogLine | None] = SimpleQueue()
        self._thread: Thread | None = None
        # The caller alone changes the first two, and the thread alone the others, so none of them needs a lock.
        self._accepted = self._refused = 0
        self._done = self._failed = self._reported = 0
        self._is_failing = self._has_unformatted = False

    @property
    def lost(self) -> int:
        """Lines that were not written."""
        return self._refused + self._failed

    def write(self, line: LogLine) -> None:
        """Write a line soon. It is lost if too many bytes wait already."""
        if self._accepted - self._done > self._max_waiting:
            self._refused += 1
            return
        self._accepted += line.size
        self._lines.put(line)
        if self._thread is None:
            # A daemon: a reader that stands still cannot keep the process from ending.
            self._thread = Thread(target=self._run, name="access-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write the lines that wait. Gives up after CLOSE_TIMEOUT. A later line starts a new thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._lines.put(None)
            thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        most = _PIPE_BYTES if _is_pipe(self._descriptor) else _FILE_BYTES
        is_open, written_at = True, -inf
        while is_open:
            line = self._lines.get()
            if line is not None and time.monotonic() - written_at < GATHER:
                with suppress(OSError):  # where a sandbox refuses the system call
                    time.sleep(GATHER)
            is_open, written_at = self._write_waiting(line, most), time.monotonic()

    def _write_waiting(self, line: LogLine | None, most: int) -> bool:
        """Write a line and those that wait after it, `most` bytes at a time. Returns False at the end."""
        piece: list[bytes] = []
        size = 0
        with suppress(Empty):
            while line is not None:
                text = self._format(line)
                if piece and size + len(text) > most:
                    self._write_piece(piece)
                    piece, size = [], 0
                if text:
                    piece.append(text)
                    size += len(text)
                self._done += line.size
                line = self._lines.get_nowait()
        if piece:
            self._write_piece(piece)
        return line is not None

    def _format(self, line: LogLine) -> bytes:
        """The text of a line. Empty if a fault of the program keeps it from being formatted; the first is logged."""
        try:
            return self._form(line)
        except Exception:
            # An exception that ended the thread would end the access log, and no line would say so.
            # The warning about lost lines says that the log can be written again, which is another matter.
            self._failed += 1
            self._reported += 1
            if not self._has_unformatted:
                log.exception("a line of the access log cannot be formatted and is lost; please report this")
            self._has_unformatted = True
            return b""

    def _write_piece(self, piece: list[bytes]) -> None:
        try:
            rest = memoryview(b"".join(piece))
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except Exception as error:
            self._failed += len(piece)
            if not self._is_failing:
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                log.error("the access log cannot be written: %s; its lines are lost until it can", reason)
            self._is_failing = True
        else:
            self._report_lost()

    def _report_lost(self) -> None:
        """Log how many lines were lost. Only this thread does it: standard error may be the pipe that nobody reads."""
        self._is_failing = False
        lost = self.lost
        if lost > self._reported:
            log.warning("%d lines of the access log were lost; it can be written again", lost - self._reported)
            self._reported = lost


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class LineService(Service):
    """Writes the last lines at the end, and counts those that were lost."""

    def __init__(self, writer: LineWriter, count_lost: Callable[..., None]) -> None:
        self._writer = writer
        self._count_lost = count_lost
        self._counted = 0

    async def start(self) -> None:
        """Write the last lines also if the process ends by a fault."""
        atexit.register(self._writer.close)

    def tick(self, _late: float) -> None:
        """Count the lines that were lost."""
        lost = self._writer.lost
        if lost > self._counted:
            self._count_lost(lost - self._counted)
            self._counted = lost

    async def stop(self) -> None:
        """Write the last lines."""
        await asyncio.to_thread(self._writer.close)
        atexit.unregister(self._writer.close)
