"""The file that a bundle is written to."""

from __future__ import annotations

import gzip
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.system.files import Replacement, is_replaceable, open_null, open_output
from doi_proxy.system.standard_streams import STANDARD_OUTPUT

#: Level of gzip. Level 9 takes three times as long, and its output is less than 2 % smaller.
_COMPRESSION: Final = 6


class OutputFile:
    """A file that gets its name when it is complete. `-` is standard output. A name with `.gz` is compressed."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ConfigurationError if it cannot be written."""
        self._name = path
        self._replacement: Replacement | None = None
        self._is_complete = False
        self._files = ExitStack()
        self.file: BinaryIO = sys.stdout.buffer
        try:
            if path != STANDARD_OUTPUT:
                self.file = self._open(Path(path))
        except OSError as error:
            raise ConfigurationError(f"--output {path}: cannot be written: {error.strerror or error}") from error
        if path.endswith(".gz"):
            self.file = cast(BinaryIO, gzip.GzipFile("", "wb", _COMPRESSION, self.file, mtime=0))

    def _open(self, path: Path) -> BinaryIO:
        if not is_replaceable(path):
            return self._files.enter_context(os.fdopen(open_output(path), "wb"))
        self._replacement = self._files.enter_context(Replacement(path))
        return self._replacement.file

    def keep(self) -> None:
        """Keep the file at the end, because its content is complete."""
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Close the file. Raises DoiProxyError for an OSError, and BrokenPipeError if the reader is gone."""
        try:
            self._close()
        except BrokenPipeError:
            raise
        except OSError as failure:
            error = failure
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error

    def _close(self) -> None:
        with self._files:
            try:
                self.file.flush()
                if isinstance(self.file, gzip.GzipFile):
                    self.file.close()
                if self._is_complete and self._replacement is not None:
                    self._replacement.put()
            except BrokenPipeError:
                # The reader is gone. The interpreter flushes the rest of the buffer at its end, which must not fail.
                os.dup2(open_null(), sys.stdout.fileno())
                raise
