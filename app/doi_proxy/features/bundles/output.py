"""The file that a bundle is written to."""

from __future__ import annotations

import gzip
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.system.private_file import open_private
from doi_proxy.system.standard_streams import STANDARD_OUTPUT

#: Level of gzip. Level 9 takes three times as long, and its output is less than 2 % smaller.
_COMPRESSION: Final = 6


class OutputFile:
    """A file that gets its name when it is complete. `-` is standard output. A name with `.gz` is compressed."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ConfigurationError if it cannot be written."""
        self._name = path
        self._path = Path(path)
        self._is_regular_file = path != STANDARD_OUTPUT and (not self._path.exists() or self._path.is_file())
        self._partial = self._path.with_name(self._path.name + ".partial") if self._is_regular_file else self._path
        self._is_complete = False
        self._files = ExitStack()
        self.file: BinaryIO = sys.stdout.buffer
        try:
            if path != STANDARD_OUTPUT:
                self.file = self._files.enter_context(self._create())
        except OSError as error:
            raise ConfigurationError(f"--output {path}: cannot be written: {error.strerror or error}") from error
        if path.endswith(".gz"):
            packed = gzip.GzipFile("", "wb", _COMPRESSION, self.file, mtime=0)
            self.file = cast(BinaryIO, self._files.enter_context(packed))

    def _create(self) -> BinaryIO:
        if not self._is_regular_file:
            return self._path.open("wb")
        # Only the owner can read it. A link that another user left is not followed.
        return os.fdopen(open_private(self._partial, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb")

    def keep(self) -> None:
        """Keep the file at the end, because its content is complete."""
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Close the file. Raises DoiProxyError for an OSError, and BrokenPipeError if the reader is gone."""
        try:
            self._close()
            if self._is_complete and self._is_regular_file:
                self._partial.replace(self._path)
        except BrokenPipeError:
            raise
        except OSError as failure:
            error = failure
        finally:
            if self._is_regular_file:
                self._partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error

    def _close(self) -> None:
        try:
            self.file.flush()
        except BrokenPipeError:
            # The reader is gone. The interpreter flushes the rest of the buffer at its end, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise
        finally:
            self._files.close()
