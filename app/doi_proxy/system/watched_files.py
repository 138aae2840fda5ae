"""Reads the files of an operator, at the start and when they have changed."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from doi_proxy.system.background import Service
from doi_proxy.system.files import read_regular
from doi_proxy.system.toml_text import FileProblem

#: Seconds between two looks at the files.
WATCH_INTERVAL: Final = 1.0
#: Files of one folder. The others of a folder with more are a problem.
MAX_FILES: Final = 1_000

#: What tells whether a file has changed: its name, and its modification time, size and inode, or an error number.
Stamp = tuple[tuple[str, int, int, int], ...]


def take_stamp(path: Path) -> Stamp:
    """The state of the files by which a change is noticed."""
    return tuple(_stamp_of(file) for file in list_toml_files(path))


def _stamp_of(file: Path) -> tuple[str, int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        return str(file), 0, 0, -(error.errno or 1)
    return str(file), found.st_mtime_ns, found.st_size, found.st_ino


def list_toml_files(path: Path) -> list[Path]:
    """The file itself, or the files of the folder whose names end with .toml, sorted; one more than MAX_FILES."""
    if not path.is_dir():
        return [path]
    try:
        with os.scandir(path) as entries:
            names = (entry.name for entry in entries if entry.name.endswith(".toml") and not entry.name.startswith("."))
            return [path / name for name in sorted(islice(names, MAX_FILES + 1))]
    except OSError:
        return [path]


class UnreadableFile(Exception):
    """A file cannot be read."""

    def __init__(self, path: Path, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.problem = FileProblem(str(path), line, column, message)


def read_text_file(path: Path, most: int, too_large: str) -> tuple[str, int]:
    """The text of a file and its size in bytes. Raises UnreadableFile, with `too_large` for more than `most` bytes."""
    try:
        data = read_regular(path, most)
    except OSError as error:
        reason = too_large if error.errno == errno.EFBIG else f"it cannot be read: {error.strerror or error}"
        raise UnreadableFile(path, reason) from error
    try:
        return data.decode("utf-8-sig"), len(data)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = 1 + before.count(b"\n"), error.start - before.rfind(b"\n")
        raise UnreadableFile(path, "the text is not UTF-8", line, column) from error


class WatchedFiles(Service):
    """A file or a folder, of which a feature reads the files again when they have changed."""

    def __init__(self) -> None:
        #: Where the files are. None without any.
        self.path: Path | None = None
        self._requested = asyncio.Event()
        self._last_stamp: Stamp = ()
        self._read_stamp: Stamp = ()

    async def run(self, interval: float = WATCH_INTERVAL) -> None:
        """Look at the files, if there are any, every `interval` seconds, and at once if a reload was requested."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self.path is None else interval):
                    await self._requested.wait()
            await self.look()

    async def look(self) -> None:
        """Read the files if a reload was requested, or if they have changed and then stayed the same for one look.

        A program that writes a file in several steps is not read halfway.
        """
        path, is_requested = self.path, self._requested.is_set()
        self._requested.clear()
        if path is None:
            if is_requested:
                self._use_nothing()
            return
        stamp = await asyncio.to_thread(take_stamp, path)
        is_settled = stamp == self._last_stamp
        self._last_stamp = stamp
        if is_requested or (stamp != self._read_stamp and is_settled):
            self._read_stamp = stamp
            await self._read(path)

    async def _read(self, path: Path) -> None:
        """Read the files, and put what they say in force if they have no error."""
        raise NotImplementedError

    def _use_nothing(self) -> None:
        """A reload has named no file."""
