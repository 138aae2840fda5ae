"""What the workers of a service share: a little memory for each use. It is in no file, and it ends with the service.

One mechanism for all of it. Files in a folder need names that other programs can take first, room on a disk, and a lock
that a stopped worker holds against all others. The folder of the service has only locks, and the files of
prometheus-client.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, Literal
from zlib import crc32

from doi_proxy.system.files import lock_beside

#: What is shared: counts of prefixes and of clients, the states of upstreams, those that are in the log, events, the
#: history, denied networks, purges, and the start of the service.
Use = Literal["prefixes", "clients", "upstreams", "log", "events", "history", "denials", "purges", "start"]
_USES: Final[tuple[Use, ...]] = (
    *("prefixes", "clients", "upstreams", "log"),
    *("events", "history", "denials", "purges", "start"),
)
#: Bytes of the memory. Pages of it that are never written take no memory.
SIZE: Final = 512 * 1024
#: The length of the content, its checksum, and how often it was changed.
_HEAD: Final = Struct("III")
#: The longest content, in bytes.
ROOM: Final = SIZE - _HEAD.size
#: Attempts to get the memory, and the seconds between two. Another worker holds it for less than a millisecond, unless
#: it was stopped.
_ATTEMPTS: Final = 20
_BETWEEN: Final = 0.0005


class SharedMemory:
    """The memory. The supervisor creates it, and its forks use it."""

    def __init__(self, lock: Path | None) -> None:
        """`lock` is a file, which stays empty. None for a process alone."""
        self._lock = lock
        self._memory = mmap.mmap(-1, SIZE)

    @property
    def version(self) -> int:
        """A number that each change changes."""
        return int(_HEAD.unpack_from(self._memory)[2])

    def read(self) -> bytes:
        """The content. It is empty at first, and after a worker was killed while it wrote."""
        for _ in range(_ATTEMPTS):
            length, checksum, _ = _HEAD.unpack_from(self._memory)
            content = self._memory[_HEAD.size : _HEAD.size + length]
            if crc32(content) == checksum:
                return content
            time.sleep(_BETWEEN)  # another worker writes
        return b""

    def change(self, change: Callable[[bytes], bytes], *, waits: bool = False) -> bool:
        """Replace the content by what `change` returns for it, unless that does not fit.

        Returns False if another worker is doing so. With `waits`, this one tries again for some 10 ms: a worker that
        was stopped stops no other.
        """
        if self._lock is None:
            self._replace(change)
            return True
        for attempt in range(_ATTEMPTS if waits else 1):
            if attempt:
                time.sleep(_BETWEEN)
            lock = lock_beside(self._lock)
            if lock is not None:
                try:
                    self._replace(change)
                finally:
                    os.close(lock)
                return True
        return False

    def _replace(self, change: Callable[[bytes], bytes]) -> None:
        length, checksum, version = _HEAD.unpack_from(self._memory)
        content = self._memory[_HEAD.size : _HEAD.size + length]
        written = change(content if crc32(content) == checksum else b"")
        if len(written) <= ROOM:
            self._memory[_HEAD.size : _HEAD.size + len(written)] = written
            _HEAD.pack_into(self._memory, 0, len(written), crc32(written), (version + 1) % 2**32)


def create_memories(folder: Path | None) -> Mapping[Use, SharedMemory]:
    """A memory for each use, with its lock in a folder of the service. Without a folder, for a process alone."""
    return {use: SharedMemory(None if folder is None else folder / f"{use}.memory.lock") for use in _USES}
