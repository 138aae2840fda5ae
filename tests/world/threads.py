"""Threads of the program that take turns with the event loop: one of them runs at a time, and waits in virtual time.

So what a thread does has its place in the order of a world, and that order is the same each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from threading import Semaphore, Thread
from typing import Any, Final, Self

from tests.world.process import PROCESS, hold, let_go

#: Turns of a thread that is to end.
_MAX_TURNS: Final = 1_000


class _Killed(BaseException):
    """Ends a thread whose process was killed, past every handler of the program."""


class Turns:
    """Makes the threads and conditions of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: The thread that has the turn. None while the loop has it.
        self.current: TurnThread | None = None

    def thread(self, *, target: Callable[[], None], **_: Any) -> TurnThread:
        """In place of threading.Thread."""
        return TurnThread(self, target)

    def condition(self) -> TurnCondition:
        """In place of threading.Condition."""
        return TurnCondition(self)


class TurnThread:
    """A thread that runs only while the loop waits for it."""

    def __init__(self, turns: Turns, target: Callable[[], None]) -> None:
        self._turns, self._target = turns, target
        self._thread = Thread(target=self._run, daemon=True)
        self._go, self._back = Semaphore(0), Semaphore(0)
        self._timer: asyncio.Handle | None = None
        self._is_over = self._is_killed = False
        self._process, self._context = PROCESS.get(), copy_context()
        hold(self)

    def start(self) -> None:
        """Let it run in a turn of its own."""
        self._thread.start()
        self._timer = self._turns.loop.call_soon(self.resume)

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self._context.run(self._target)
        except _Killed:
            pass
        finally:
            self._is_over = True
            let_go(self._process, self)
            self._back.release()

    def resume(self) -> None:
        """Let it run until it waits again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_over:
            self._turns.current = self
            self._go.release()
            self._back.acquire()
            self._turns.current = None

    def wake(self, seconds: float) -> None:
        """Let it run after so much virtual time."""
        if self._timer is not None:
            self._timer.cancel()
        loop = self._turns.loop
        self._timer = loop.call_later(seconds, self.resume) if seconds else loop.call_soon(self.resume)

    def pause(self) -> None:
        """Called by the thread itself: the loop goes on."""
        self._back.release()
        self._go.acquire()
        if self._is_killed:
            raise _Killed

    def kill(self) -> None:
        """Its process was killed: it does nothing more."""
        self._is_killed = True
        if self._thread.ident is not None:
            self.resume()

    def join(self, timeout: float | None = None) -> None:
        """Let it run to its end."""
        for _ in range(_MAX_TURNS):
            if self._is_over:
                return
            self.resume()
        raise RuntimeError("a thread does not end")


class TurnCondition:
    """A condition on which one thread waits. The loop is never in the middle of a change, so it locks nothing."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: TurnThread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def notify(self) -> None:
        """Wake the thread that waits."""
        if self._waiting is not None:
            self._waiting.wake(0.0)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds, for `timeout` virtual seconds at most. Returns whether it holds."""
        thread, loop = self._turns.current, self._turns.loop
        assert thread is not None, "only a thread waits"
        ends = None if timeout is None else loop.time() + timeout
        while not predicate() and (ends is None or loop.time() < ends):
            self._waiting = thread
            if ends is not None:
                thread.wake(ends - loop.time())
            thread.pause()
            self._waiting = None
        return predicate()
