"""The file or the pipe that receives the rows of a job."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from app.errors import ConfigurationError, DoiProxyError
from app.features.lists.list_stream import write_all


class RowOutput:
    """An open output. `path` None is standard output."""

    def __init__(self, path: Path | None) -> None:
        """Open the output, and change nothing in it. Raises ConfigurationError if it cannot be written."""
        self._name = "standard output" if path is None else f"--output-file {path}"
        self._files = ExitStack()
        self._is_file = path is not None
        if path is None:
            self._fd = sys.stdout.fileno()
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            try:
                self._fd = os.open(path, flags, 0o666)
            except OSError as error:
                raise ConfigurationError(f"{self._name}: cannot be written: {error.strerror or error}") from error
            self._files.callback(os.close, self._fd)
        self.is_regular = stat.S_ISREG(os.fstat(self._fd).st_mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def size(self) -> int:
        """The bytes of a regular file, 0 of another."""
        return os.fstat(self._fd).st_size if self.is_regular else 0

    def claim(self) -> None:
        """Make sure that the output can be continued, and that no other process does. Raises ConfigurationError."""
        if not self.is_regular:
            raise ConfigurationError("--resume: rows in a pipe cannot be continued; use --output-file FILE")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{self._name}: another process writes to it; wait until it ends") from error

    def start(self) -> int:
        """Empty the file, and return its size. Rows on standard output follow what it has."""
        if self._is_file:
            self.cut(0)
        return self.size

    def cut(self, size: int) -> None:
        """Remove what follows the first `size` bytes, and continue there. Raises ConfigurationError."""
        if self.size < size:
            raise ConfigurationError(
                f"--resume: {self._name} has {self.size} bytes, and the job has written {size}; name the file that the "
                "job began with (with standard output, use >> and not >), or remove the state file to start again"
            )
        if self.is_regular:
            os.ftruncate(self._fd, size)
            os.lseek(self._fd, size, os.SEEK_SET)

    async def write(self, data: bytes) -> None:
        """Write bytes. Raises DoiProxyError, and BrokenPipeError if the reader of a pipe has left."""
        try:
            await write_all(self._fd, data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error
