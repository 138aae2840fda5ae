"""A little memory for each of some uses, which the workers of a service share. It is in no file, and it ends with the
service.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, Literal
from zlib import crc32

from doi_proxy.sharing.folder import lock_file

#: What is shared: counts of prefixes and of clients, the states of upstreams, and the states that are in the log.
Use = Literal["prefixes", "clients", "upstreams", "log"]
_USES: Final[tuple[Use, ...]] = ("prefixes", "clients", "upstreams", "log")
#: Bytes of the memory. Pages of it that are never written take no memory.
SIZE: Final = 512 * 1024
#: The length of the content and its checksum, which are before it.
_HEAD: Final = Struct("II")


class SharedMemory:
    """The memory. The supervisor creates it, and its forks use it. `lock` is a file, which stays empty."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._memory = mmap.mmap(-1, SIZE)

    def change(self, change: Callable[[bytes], bytes]) -> bool:
        """Replace the content. Returns False if another worker is doing so: a worker that was stopped stops no other.

        The content is empty at first, and after a worker was killed while it wrote.
        """
        lock = lock_file(self._lock)
        if lock is None:
            return False
        try:
            length, checksum = _HEAD.unpack_from(self._memory)
            content = self._memory[_HEAD.size : _HEAD.size + length]
            written = change(content if crc32(content) == checksum else b"")
            if len(written) <= SIZE - _HEAD.size:
                self._memory[_HEAD.size : _HEAD.size + len(written)] = written
                _HEAD.pack_into(self._memory, 0, len(written), crc32(written))
        finally:
            os.close(lock)
        return True


def create_memories(folder: Path) -> Mapping[Use, SharedMemory]:
    """A memory for each use, with its lock in a folder of the service."""
    return {use: SharedMemory(folder / f"{use}.memory.lock") for use in _USES}
