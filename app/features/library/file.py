"""The file of library rules: read at the start, at SIGHUP, and when it has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from app.errors import ConfigurationError
from app.features.library.copy import LibraryRules
from app.features.library.rules import RulesFile, read_rules
from app.features.toml_files.text import FileProblem
from app.features.toml_files.watching import UnreadableFile, WatchedFiles, read_text, take_stamp

log = logging.getLogger(__name__)

#: Larger files are refused.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Problems of one file that an error names.
_MAX_NAMED: Final = 5


class LibraryFile(WatchedFiles):
    """Keeps the rules of a file in force. A file with a problem leaves the previous rules in force."""

    def __init__(self, use: Callable[[LibraryRules], None]) -> None:
        """`use` puts rules in force."""
        super().__init__()
        self._use = use
        #: The problems of the last reading.
        self.problems: tuple[FileProblem, ...] = ()

    def ready(self) -> Mapping[str, str]:
        """Whether the rules of the file are in force."""
        return {"library_rules": "broken" if self.problems else "ok"} if self.path is not None else {}

    def load(self, path: Path | None) -> None:
        """Put the rules of a file in force, or none. Raises ConfigurationError, and then changes nothing."""
        if path is None:
            self.path = None
            self._use_nothing()
            return
        stamp = take_stamp(path)
        found = read_library_rules(path)
        if self.path == path:
            self.problems = found.problems
        if found.problems:
            raise ConfigurationError(f"library_rules: {_name(found.problems)}")
        self.path, self.problems, self._last_stamp, self._read_stamp = path, (), stamp, stamp
        self._use(found.rules)

    def request_reload(self, path: Path | None) -> None:
        """Make the watching task read this file immediately, or drop the rules if there is none.

        If the file cannot be used, the rules in force stay, and the task waits for a change of the file.
        """
        self.path = path
        self._requested.set()

    def _use_nothing(self) -> None:
        self.problems = ()
        self._use(LibraryRules())

    async def _read(self, path: Path) -> None:
        # A thread reads it: a file of 1 MiB takes seconds.
        found = await asyncio.to_thread(read_library_rules, path)
        if self.path != path:
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
        text, _ = read_text(path, MAX_FILE_BYTES, f"it is larger than {MAX_FILE_BYTES} bytes; remove rules")
    except UnreadableFile as error:
        return RulesFile(LibraryRules(), (), (error.problem,))
    return read_rules(text, str(path))


def _name(problems: tuple[FileProblem, ...]) -> str:
    more = len(problems) - _MAX_NAMED
    return "; ".join(map(str, problems[:_MAX_NAMED])) + (f"; and {more} more" if more > 0 else "")
