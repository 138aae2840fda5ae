"""Processes and machines of a world. All processes share its loop, and each can be killed between any two turns of it.

What a process does, it does in its context: tasks, timers, connections, threads and files belong to it by that.
"""

from __future__ import annotations

import sqlite3
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(eq=False)
class Machine:
    """A machine, with a clock."""

    #: Seconds by which its clock is ahead of that of the world.
    ahead: float = 0.0


class Killable(Protocol):
    """What a process holds."""

    def kill(self) -> None:
        """End it as the kernel does: nothing of the process runs."""


class Process:
    """A process on a machine. `PROCESS` is set in its context."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.context = copy_context()
        self.context.run(PROCESS.set, self)
        #: Its connections, ports, threads and files. Those that end before it leave.
        self.held: dict[Killable, None] = {}
        self.is_killed = False

    def kill(self) -> None:
        """Close what the kernel closes. The caller stops what would run in the context."""
        self.is_killed = True
        for held in list(self.held):
            held.kill()


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def hold(thing: Killable) -> None:
    """Let the current process hold a thing, if there is one."""
    process = PROCESS.get()
    if process is not None:
        process.held[thing] = None


def let_go(process: Process | None, thing: Killable) -> None:
    """A thing has ended before its process."""
    if process is not None:
        process.held.pop(thing, None)


class File(sqlite3.Connection):
    """A file of SQLite, in place of sqlite3.Connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._process = PROCESS.get()
        hold(self)

    def close(self) -> None:
        let_go(self._process, self)
        super().close()

    def kill(self) -> None:
        """Its process was killed. An open transaction is rolled back."""
        self.close()
