"""The file of library rules: read at the start, at SIGHUP, and when it has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.library.copy import LibraryRules
from doi_proxy.features.library.rules import RulesFile, read_rules
from doi_proxy.store.file import NOT_KEPT, LastGood
from doi_proxy.system.files import UnreadableFile, WatchedFiles, read_text_file, take_stamp
from doi_proxy.system.toml_text import FileProblem

log = logging.getLogger(__name__)

#: Larger files are refused.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Problems of one file that an error names.
_MAX_NAMED: Final = 5


class LibraryFile(WatchedFiles):
    """Keeps the rules of a file in force. A file with a problem leaves the previous rules in force."""

    def __init__(self, use: Callable[[LibraryRules], None], last_good: LastGood = NOT_KEPT) -> None:
        """`use` puts rules in force."""
        super().__init__()
        self._last_good = last_good
        self._use = use
        #: The problems of the last reading.
        self.problems: tuple[FileProblem, ...] = ()

    def ready(self) -> Mapping[str, str]:
        """Whether the rules of the file are in force."""
        return {"library_rules": "broken" if self.problems else "ok"} if self.path is not None else {}

    def load(self, path: Path | None) -> None:
        """Put the rules of a file in force at the start, or none. If it has a problem, the last good ones are in force.

        Raises ConfigurationError if there are none.
        """
        if path is None:
            self.path = None
            self._use_nothing()
            return
        stamp = take_stamp(path)
        found = read_library_rules(path)
        in_force = found if not found.problems else read_last_good_rules(self._last_good, path)
        if in_force is None:
            raise ConfigurationError(f"library_rules: {_name(found.problems)}")
        self.path, self.problems, self._last_stamp, self._read_stamp = path, found.problems, stamp, stamp
        self._use(in_force.rules)
        if found.problems:
            self._report()
        else:
            self._last_good.keep(path, found.text)

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
            self._report()
        else:
            self._use(found.rules)
            await asyncio.to_thread(self._last_good.keep, path, found.text)
            log.info("library rules: %s rules from %s are in force", len(found.rules.rules), path)

    def _report(self) -> None:
        log.error("library rules: %s; the last good rules are in force, correct the file", _name(self.problems))


def last_good_rules(store_url: str) -> LastGood:
    """Where the last good rules are."""
    return LastGood(store_url, "library-rules")


def read_last_good_rules(last_good: LastGood, path: Path) -> RulesFile | None:
    """The last good rules of the file at `path`. None without any that can be used."""
    copy = last_good.find(path)
    # Room for the header of a copy, in bytes: it has the path of the file.
    found = None if copy is None else read_library_rules(copy, MAX_FILE_BYTES + (8 * 1024))
    return None if found is None or found.problems else found


def read_library_rules(path: Path, most: int = MAX_FILE_BYTES) -> RulesFile:
    """Read a file of rules and check its expectations. Does not raise: what is wrong is in the problems."""
    try:
        text, _ = read_text_file(path, most, f"it is larger than {MAX_FILE_BYTES} bytes; remove rules")
    except UnreadableFile as error:
        return RulesFile(LibraryRules(), (), (error.problem,))
    return replace(read_rules(text, str(path)), text=text)


def _name(problems: tuple[FileProblem, ...]) -> str:
    more = len(problems) - _MAX_NAMED
    return "; ".join(map(str, problems[:_MAX_NAMED])) + (f"; and {more} more" if more > 0 else "")
