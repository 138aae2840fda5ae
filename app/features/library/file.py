"""The file of library rules: read at the start, at SIGHUP, and when it has changed."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.errors import ConfigurationError
from app.features.library.copy import LibraryRules
from app.features.library.rules import RulesFile, read_rules
from app.features.toml_files.text import Problem
from app.features.toml_files.watching import take_stamp

log = logging.getLogger(__name__)

#: Larger files are refused.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Problems of one file that an error names.
_MAX_NAMED: Final = 5


class LibraryFile:
    """Keeps the rules of a file in force. A file with a problem leaves the previous rules in force."""

    def __init__(self, use: Callable[[LibraryRules], None]) -> None:
        """`use` puts rules in force."""
        self._use = use
        self._path: Path | None = None
        self._requested = asyncio.Event()
        self._last_stamp = self._read_stamp = take_stamp(Path())
        #: The problems of the last reading.
        self.problems: tuple[Problem, ...] = ()

    @property
    def is_used(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def load(self, path: Path | None) -> None:
        """Put the rules of a file in force, or none. Raises ConfigurationError, and then changes nothing."""
        if path is None:
            self._path, self.problems = None, ()
            self._use(LibraryRules())
            return
        stamp = take_stamp(path)
        found = read_library_rules(path)
        if self._path == path:
            self.problems = found.problems
        if found.problems:
            raise ConfigurationError(f"library_rules: {_name(found.problems)}")
        self._path, self.problems, self._last_stamp, self._read_stamp = path, (), stamp, stamp
        self._use(found.rules)

    def request_reload(self, path: Path | None) -> None:
        """Make the watching task read this file immediately, or drop the rules if there is none.

        If the file cannot be used, the rules in force stay, and the task waits for a change of the file.
        """
        self._path = path
        self._requested.set()

    async def watch(self, interval: float) -> None:
        """Look at the file every `interval` seconds until the task is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._requested.wait()
            await self.look()

    async def look(self) -> None:
        """Read the file if a reload was requested, or if it has changed and then stayed the same for one look.

        A thread reads it: a file of 1 MiB takes seconds.
        """
        path, is_requested = self._path, self._requested.is_set()
        self._requested.clear()
        if path is None:
            if is_requested:
                self.problems = ()
                self._use(LibraryRules())
            return
        stamp = await asyncio.to_thread(take_stamp, path)
        is_settled = stamp == self._last_stamp
        self._last_stamp = stamp
        if not is_requested and (stamp == self._read_stamp or not is_settled):
            return
        self._read_stamp = stamp
        found = await asyncio.to_thread(read_library_rules, path)
        if self._path != path:
            return  # a reload has named another file
        self.problems = found.problems
        if found.problems:
            log.error("library rules: %s; the previous rules stay in force, correct the file", _name(found.problems))
        else:
            self._use(found.rules)
            log.info("library rules: %s rules from %s are in force", len(found.rules.rules), path)


def read_library_rules(path: Path) -> RulesFile:
    """Read a file of rules and check its expectations. Does not raise: what is wrong is in the problems."""
    try:
        # A pipe without a writer must not keep the reader waiting.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            is_regular = stat.S_ISREG(os.fstat(opened.fileno()).st_mode)
            data = opened.read(MAX_FILE_BYTES + 1) if is_regular else b""
    except OSError as error:
        return _unusable(path, f"it cannot be read: {error.strerror or error}")
    if not is_regular:
        return _unusable(path, "it is not a regular file")
    if len(data) > MAX_FILE_BYTES:
        return _unusable(path, f"it is larger than {MAX_FILE_BYTES} bytes; remove rules")
    try:
        return read_rules(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        return _unusable(path, "the text is not UTF-8", 1 + data.count(b"\n", 0, error.start))


def _unusable(path: Path, message: str, line: int = 0) -> RulesFile:
    return RulesFile(LibraryRules(), (), (Problem(str(path), line, 1, message),))


def _name(problems: tuple[Problem, ...]) -> str:
    more = len(problems) - _MAX_NAMED
    return "; ".join(map(str, problems[:_MAX_NAMED])) + (f"; and {more} more" if more > 0 else "")
