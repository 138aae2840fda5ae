"""Files that an operator writes and a setting names: read at the start, and read again when they change.

Files with an error change nothing: the last good version stays in force. Its text is kept beside a SQLite store, else
in the folder that the environment names, so a start after the mistake has it too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, Generic, TypeVar

from doi_proxy.errors import ConfigurationError
from doi_proxy.store.file import read_store_path
from doi_proxy.system.check import Finding, Inspection, Service
from doi_proxy.system.files import open_regular, read_regular, replace_private
from doi_proxy.system.options import Settings
from doi_proxy.system.toml_text import FileProblem

log = logging.getLogger(__name__)

#: Files of one folder. The others of a folder with more are a problem.
MAX_FILES: Final = 1_000
#: Problems that the log or an error names.
_MAX_NAMED: Final = 20
_HEADER: Final = "# doi-proxy: the last good text of {path}\n"

Value = TypeVar("Value")
#: What tells whether a file has changed: its name, its times of modification and of change (as by chmod), size and
#: inode, or an error number.
Stamp = tuple[tuple[str, int, int, int, int], ...]


def _stamp_of(file: Path) -> tuple[str, int, int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        return str(file), 0, 0, 0, -(error.errno or 1)
    return str(file), found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@dataclass(frozen=True, slots=True)
class FileReading(Generic[Value]):
    """The result of reading files. The value can be used if there are no errors. `text` is that of all files."""

    value: Value
    problems: tuple[FileProblem, ...]
    text: str

    @property
    def errors(self) -> tuple[FileProblem, ...]:
        """The problems because of which the value cannot be used."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


@dataclass(frozen=True, slots=True)
class FileKind(Generic[Value]):
    """The files of one setting. `copy` is the end of the name of the copy of their last good text.

    `parse` gets the text of each file by its name, and none without a path. All files together have at most `most`
    bytes; `advice` says what to do about more. Only with `endings` can the setting name a folder: those of its files.
    """

    setting: str
    copy: str
    parse: Callable[[Mapping[str, str]], tuple[Value, Iterable[FileProblem]]]
    most: int
    advice: str
    endings: tuple[str, ...] = ()

    def list_files(self, path: Path | None) -> list[Path]:
        """The file itself, or the files of the folder, sorted; one more than MAX_FILES. None without a path."""
        if path is None:
            return []
        if not self.endings or not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises in a folder without access
            return [path]
        try:
            with os.scandir(path) as entries:
                named = (entry.name for entry in entries if not entry.name.startswith("."))
                names = list(islice((name for name in named if name.endswith(self.endings)), MAX_FILES + 1))
            return [path / name for name in sorted(names)]
        except OSError:
            return [path]

    def take_stamp(self, path: Path | None) -> Stamp:
        """What tells whether the files have changed. Files that cannot be read have one too."""
        return tuple(_stamp_of(file) for file in self.list_files(path))

    def read(self, path: Path | None) -> FileReading[Value]:
        """Read the files. Does not raise: what is wrong is in the problems."""
        return self.read_files(self.list_files(path))

    def read_files(self, files: Sequence[Path]) -> FileReading[Value]:
        """See read."""
        texts, problems, room = dict[str, str](), list[FileProblem](), self.most
        if len(files) > MAX_FILES:
            problems.append(FileProblem(str(files[0].parent), 0, 0, f"the folder has more than {MAX_FILES} files"))
        for file in files[:MAX_FILES]:
            try:
                content = read_regular(file, room)
                room -= len(content)
                texts[str(file)] = content.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                before = error.object[: error.start]
                line, column = 1 + before.count(b"\n"), error.start - before.rfind(b"\n")
                problems.append(FileProblem(str(file), line, column, "the text is not UTF-8"))
            except OSError as error:
                reason = f"it cannot be read: {error.strerror or error}"
                if error.errno == errno.EFBIG:
                    reason = f"the text has more than {self.most} bytes; {self.advice}"
                problems.append(FileProblem(str(file), 0, 0, reason))
        value, found = self.parse(texts)
        # Problems that are collected.
        return FileReading(value, tuple([*problems, *found][:1_000]), "\n".join(texts.values()))

    def check(self, inspection: Inspection) -> Iterator[Finding]:
        """Every problem in the files, with its place."""
        remedy = "correct the file; until then the last good version is in force, and without one a start fails"
        for problem in self.read(inspection.settings.value(self.setting)).problems:
            advice = remedy if problem.severity == "error" else ""
            yield Finding(problem.severity, inspection.source(self.setting), str(problem), advice)


class KeptFile(Service, Generic[Value]):
    """Keeps the value of files in force. Files with an error leave the previous value in force."""

    def __init__(self, kind: FileKind[Value], use: Callable[[Value], None], settings: Settings) -> None:
        """`use` puts a value in force. It raises ConfigurationError if it cannot, and then changes nothing.

        Reads the files, and raises ConfigurationError if they have an error and no last good version is left.
        """
        self._kind = kind
        self._use = use
        self._copy = _find_copy(settings.store_url, kind.copy)
        self._requested = asyncio.Event()
        self.load(settings)

    @property
    def state(self) -> str:
        """The word about the last reading."""
        return "broken" if any(problem.severity == "error" for problem in self.problems) else "ok"

    def load(self, settings: Settings) -> None:
        """Read the files at the start. See __init__."""
        #: Where the files are. None without any.
        self.path: Path | None = settings.value(self._kind.setting)
        self._read_stamp = self._last_stamp = self._kind.take_stamp(self.path)
        reading = self._kind.read(self.path)
        #: The problems of the last reading.
        self.problems = reading.problems
        good = self._read_copy() if reading.errors else reading
        if good is None:
            raise ConfigurationError(f"{self._kind.setting}: {'; '.join(map(str, reading.errors[:_MAX_NAMED]))}")
        try:
            self._use(good.value)
        except ConfigurationError as error:
            copy = self._read_copy() if good is reading else None
            if copy is None:
                raise
            self.problems, good = (FileProblem(str(self.path), 0, 0, error.message),), copy
            self._use(good.value)
        self._report()
        if good is reading:
            self._keep(self.path, reading.text)

    def reload(self, settings: Settings) -> None:
        """Let the watching task read the files of these settings at once, whether they have changed or not."""
        self.path = settings.value(self._kind.setting)
        self._requested.set()

    async def run(self, interval: float = 1.0) -> None:
        """Look at the files, if there are any, every `interval` seconds, and at once if a reload was requested."""
        fault = ""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.path is None else interval):
                    await self._requested.wait()
            try:
                await self.look()
            except Exception as error:  # a fault of this program: the watching goes on, and tries again
                if fault != (fault := str(error)):
                    log.exception("%s: the file is tried again each second", self._kind.setting)
                self.problems = (FileProblem(str(self.path), 0, 0, f"it cannot be used: {error}"),)
                self._read_stamp = ()

    async def look(self) -> None:
        """Read the files if a reload was requested, or if they have changed and then stayed the same for one look.

        A program that writes a file in several steps is not read halfway.
        """
        path, is_requested = self.path, self._requested.is_set()
        self._requested.clear()
        stamp = await asyncio.to_thread(self._kind.take_stamp, path)
        is_settled = stamp == self._last_stamp
        self._last_stamp = stamp
        if not is_requested and (stamp == self._read_stamp or not is_settled):
            return
        self._read_stamp = stamp
        # A thread reads them: 100,000 records take a second, in which the event loop answers requests.
        reading = await asyncio.to_thread(self._kind.read, path)
        if self.path != path:
            return  # a reload has named another file
        self.problems = reading.problems
        if not reading.errors:
            try:
                self._use(reading.value)
            except ConfigurationError as error:
                self.problems = (FileProblem(str(path), 0, 0, error.message),)
        self._report()
        if self.state == "ok":
            await asyncio.to_thread(self._keep, path, reading.text)

    def _report(self) -> None:
        setting = self._kind.setting
        for problem in self.problems[:_MAX_NAMED]:
            log.log(logging.ERROR if problem.severity == "error" else logging.WARNING, "%s: %s", setting, problem)
        if len(self.problems) > _MAX_NAMED:
            log.warning("%s: %s more problems", setting, len(self.problems) - _MAX_NAMED)
        if self.state == "broken":
            log.error("%s: the last good version is in force; correct the file", setting)
        elif self.path is not None:
            log.info("%s: %s is in force", setting, self.path)

    # --- The copy of the last good text -------------------------------------------------------------------------------

    def _keep(self, path: Path | None, text: str) -> None:
        """Keep the text of the files at `path`. A copy that cannot be written costs a log line."""
        if self._copy is None or path is None:
            return
        content = (_HEADER.format(path=path) + text).encode()
        with suppress(OSError):
            if self._copy.stat().st_size == len(content) and read_regular(self._copy, len(content)) == content:
                return
        try:
            replace_private(self._copy, content)
        except OSError as error:
            reason = error.strerror or error
            log.warning("the last good text of %s cannot be kept in %s: %s", path, self._copy, reason)

    def _read_copy(self) -> FileReading[Value] | None:
        """The last good version of the files. None without one that can be used."""
        if self._copy is None:
            return None
        header = _HEADER.format(path=self.path).encode()
        with suppress(OSError), open_regular(self._copy) as file:
            if file.read(len(header)) == header:
                # Room for the header, and for the line ends between the texts of a folder.
                reading = replace(self._kind, most=self._kind.most + len(header) + MAX_FILES).read(self._copy)
                return None if reading.errors else reading
        return None


def _find_copy(store_url: str, name: str) -> Path | None:
    """The copy's path: beside a SQLite store, else in the folder that the environment names. None without both."""
    store = read_store_path(store_url)
    # systemd sets it (StateDirectory= in systemd.exec(5)), and so does the image.
    if store is None and (folders := os.environ.get("STATE_DIRECTORY")):
        store = Path(folders.partition(":")[0]) / "doi-proxy"
    # A URL without a path, which the opening of the store refuses, names no file.
    return store.with_name(f"{store.name}.{name}") if store and store.name else None
