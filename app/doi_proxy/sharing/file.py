"""A small file that the workers of a machine share. Readers see the whole old content or the whole new one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from doi_proxy.system.private_file import open_private


class SharedFile:
    """The file and what this worker has read of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Two changes can have the same time, and each makes a new file.
        self._version = (0, 0)

    def read(self) -> bytes:
        """The content. Without a file, it is empty. Raises OSError."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def read_new(self) -> bytes | None:
        """The content, if it has changed since the last call of this worker, else None. Raises OSError."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        version = found.st_mtime_ns, found.st_ino
        if version == self._version:
            return None
        self._version = version
        return self.read()

    def change(self, change: Callable[[bytes], bytes]) -> bytes:
        """Replace the content by what `change` returns for it. Returns the new content.

        Other workers wait meanwhile. Raises OSError.
        """
        lock = open_private(self._path.with_suffix(".lock"), os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = change(self.read())
            new = self._path.with_suffix(".new")
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(content)
            new.replace(self._path)
            return content
        finally:
            os.close(lock)
