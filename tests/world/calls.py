"""Counts the calls of a store, of which the n-th one goes wrong: of a file of SQLite, of Valkey, of the file system."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Literal, TypeVar

from tests.world.process import PROCESS, File

Result = TypeVar("Result")
How = Literal["fails", "is cut short", "takes 3 s", "ENOSPC", "EIO", "EMFILE"]
#: What can happen to a call of a store, and to an operation of the file system.
CALLS: Final[tuple[How, ...]] = ("fails", "is cut short", "takes 3 s")
OPERATIONS: Final[tuple[How, ...]] = ("ENOSPC", "EIO", "EMFILE")
SLOW: Final = 3.0
#: The operations of the file system that are counted, by their names as audit events of Python.
_EVENTS: Final = frozenset({"open", "sqlite3.connect", "os.rename", "os.remove", "os.truncate", "os.link"})


class Calls:
    """Counts calls. The one of this `number`, from 1 on, goes wrong. 0: none of them."""

    #: Those that are counted now.
    current: ClassVar[Calls | None] = None
    _is_watched: ClassVar[bool] = False

    def __init__(self, number: int, how: How) -> None:
        self._number, self.how = number, how
        self.made = 0
        #: Called when one goes wrong; and to let seconds pass in which nothing runs.
        self.on_trouble: Callable[[], None] = lambda: None
        self.stand_still: Callable[[float], None] = lambda seconds: None

    def is_due(self) -> bool:
        """Count a call. Returns whether it goes wrong."""
        self.made += 1
        if self.made != self._number:
            return False
        self.on_trouble()
        return True

    def make(self, call: Callable[[], Result]) -> Result:
        """Make a call of a file of SQLite."""
        if self.how not in CALLS or PROCESS.get() is None or not self.is_due():
            return call()
        if self.how == "takes 3 s":
            self.stand_still(SLOW)
            return call()
        if self.how == "is cut short":
            call()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the calls of processes."""
        if not Calls._is_watched:
            sys.addaudithook(_hear)
            Calls._is_watched = True
        Calls.current = self
        try:
            yield
        finally:
            Calls.current = None


class CountedFile(File):
    """A file of SQLite whose calls are counted."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        return self._make(super().execute, arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        return self._make(super().executemany, arguments)

    @staticmethod
    def _make(call: Callable[..., sqlite3.Cursor], arguments: tuple[Any, ...]) -> sqlite3.Cursor:
        calls = Calls.current
        return call(*arguments) if calls is None else calls.make(lambda: call(*arguments))


def _hear(event: str, values: tuple[Any, ...]) -> None:
    calls = Calls.current
    if calls is None or event not in _EVENTS or calls.how not in OPERATIONS or PROCESS.get() is None:
        return
    if "store.sqlite" in str(values[0]) and calls.is_due():
        if event == "sqlite3.connect":
            raise sqlite3.OperationalError("unable to open database file")
        number = getattr(errno, calls.how)
        raise OSError(number, os.strerror(number), values[0])
