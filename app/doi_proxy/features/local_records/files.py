"""The files of local records: read at the start, and read again when they change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.local_records.file_text import read_records
from doi_proxy.features.local_records.records import LocalRecord, LocalRecords, find_conflicts, find_expired
from doi_proxy.store.file import NOT_KEPT, LastGood
from doi_proxy.system.files import MAX_FILES, UnreadableFile, WatchedFiles, list_toml_files, read_text_file, take_stamp
from doi_proxy.system.toml_text import FileProblem

log = logging.getLogger(__name__)

#: Limits of the problems that are collected, and of those that are logged.
MAX_PROBLEMS: Final = 1_000
_MAX_LOGGED: Final = 20
_ADVICE: Final = "remove some, or import the targets of many names as a registry file: docs/registry-files.md"


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The largest number of records, and the largest size of all files together in bytes: 335 for each record."""

    #: Records are for what one institution corrects or adds. More of them slow down each start and reload: 100,000 take
    #: two to three seconds of processor time, and 90 MB in the process. Registry files have room for all DOI names.
    records: int = 200_000
    bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FilesReading:
    """The result of reading the files. Its records can be used if `errors` is empty. `text` is that of all files."""

    records: LocalRecords
    problems: tuple[FileProblem, ...]
    text: str = ""

    @property
    def errors(self) -> tuple[FileProblem, ...]:
        """The problems because of which the records cannot be used."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


class LocalFiles(WatchedFiles):
    """Keeps the records of a file or folder in force. Files with an error leave the previous records in force."""

    def __init__(
        self,
        path: Path,
        bounds: FileBounds,
        clock: Callable[[], float],
        use: Callable[[LocalRecords], None],
        last_good: LastGood = NOT_KEPT,
    ) -> None:
        """`use` puts records in force. It raises ConfigurationError if it cannot, and then changes nothing."""
        super().__init__()
        self._last_good = last_good
        self.path: Path = path
        self._bounds = bounds
        self._clock = clock
        self._use = use
        #: The number of records in force, and the problems of the last reading.
        self.records = 0
        self.problems: tuple[FileProblem, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether the files have an error. Then earlier records are in force."""
        return any(problem.severity == "error" for problem in self.problems)

    def ready(self) -> Mapping[str, Any]:
        """The number of records in force, and the places of problems. Their messages are in the log."""
        # Problems that /readyz shows.
        places = [
            {"file": Path(problem.file).name, "line": problem.line, "column": problem.column}
            for problem in self.problems[:10]
        ]
        state = "broken" if self.is_broken else "ok"
        return {"local_records": {"state": state, "records": self.records, "problems": places}}

    def load(self) -> None:
        """Read the files at the start. If they have an error, the last good ones are in force.

        Raises ConfigurationError with every error, up to a limit, if there are none.
        """
        self._read_stamp = self._last_stamp = take_stamp(self.path)
        reading = read_files(self.path, self._bounds, self._clock())
        if not reading.errors:
            self._put_in_force(reading)
            self._last_good.keep(self.path, reading.text)
            return
        before = read_last_good_records(self._last_good, self.path, self._bounds, self._clock())
        if before is None:
            raise ConfigurationError("local_records: " + "; ".join(map(str, reading.errors[:_MAX_LOGGED])))
        self._use(before.records)
        self.records = len(before.records)
        self._report_errors(reading.problems)

    def request_reload(self, _: object = None) -> None:
        """Let the watching task read the files at once, whether they have changed or not."""
        self._requested.set()

    async def _read(self, path: Path) -> None:
        # 100,000 records take a second, in which the event loop answers requests.
        reading = await asyncio.to_thread(read_files, path, self._bounds, self._clock())
        if reading.errors:
            self._report_errors(reading.problems)
            return
        try:
            self._put_in_force(reading)
        except ConfigurationError as error:
            self._report_errors((FileProblem(str(self.path), 0, 0, error.message),))
            return
        await asyncio.to_thread(self._last_good.keep, path, reading.text)

    def _put_in_force(self, reading: FilesReading) -> None:
        self._use(reading.records)
        self.problems, self.records = reading.problems, len(reading.records)
        _log_problems(logging.WARNING, reading.problems)
        log.info("local records: %s records from %s are in force", self.records, self.path)

    def _report_errors(self, problems: tuple[FileProblem, ...]) -> None:
        self.problems = problems
        _log_problems(logging.ERROR, problems)
        log.error("local records: the last good %s records are in force; correct the file", self.records)


def _log_problems(level: int, problems: tuple[FileProblem, ...]) -> None:
    for problem in problems[:_MAX_LOGGED]:
        log.log(level, "local records: %s", problem)
    if len(problems) > _MAX_LOGGED:
        log.log(level, "local records: %s more problems", len(problems) - _MAX_LOGGED)


def read_files(path: Path, bounds: FileBounds, now: float) -> FilesReading:
    """Read the records of a file or folder. `now` is in seconds since the epoch."""
    records: list[LocalRecord] = []
    problems: list[FileProblem] = []
    texts: list[str] = []
    files = list_toml_files(path)
    if len(files) > MAX_FILES:
        problems.append(FileProblem(str(path), 0, 0, f"the folder has more than {MAX_FILES} files"))
    room = bounds.bytes
    for file in files[:MAX_FILES]:
        try:
            text, size = read_text_file(
                file, room, f"the files have more than {bounds.bytes} bytes of records; {_ADVICE}"
            )
        except UnreadableFile as error:
            problems.append(error.problem)
            continue
        room -= size
        texts.append(text)
        for item in read_records(text, str(file)):
            if isinstance(item, FileProblem):
                problems.append(item)
            else:
                records.append(item)
            if len(problems) >= MAX_PROBLEMS or len(records) > bounds.records:
                break
    if len(records) > bounds.records:
        problems.append(records[-1].problem(f"there are more than {bounds.records} records; {_ADVICE}"))
    if not problems:
        problems = [*find_conflicts(records), *find_expired(records, now)]
    return FilesReading(LocalRecords(records), tuple(problems[:MAX_PROBLEMS]), "\n".join(texts))


def read_last_good_records(last_good: LastGood, path: Path, bounds: FileBounds, now: float) -> FilesReading | None:
    """The last good records of the files at `path`. None without any that can be used."""
    copy = last_good.find(path)
    # The header of the copy takes room too.
    reading = None if copy is None else read_files(copy, replace(bounds, bytes=2 * bounds.bytes), now)
    return None if reading is None or reading.errors else reading
