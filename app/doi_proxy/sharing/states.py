"""What the workers of a service know together: a word for each part, who found it out last, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from doi_proxy.sharing.memory import SharedMemory

#: Parts of one service. Its upstreams are far fewer.
MAX_PARTS: Final = 500


class PartState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a part. Times are in seconds: `at` monotonic, `since` since the epoch."""

    word: str
    at: float = 0.0
    since: float | None = None
    process: int = 0


class SharedStates:
    """The states in a memory that the workers share."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._known: dict[str, PartState] = {}

    def begin(self, part: str, word: str) -> bool:
        """Begin a state. Returns False if another worker that still runs began it, and no other state since then."""
        known = self._join({part: PartState(word, process=os.getpid())}).get(part)
        return known is None or known.word != word or known.process == os.getpid() or not _runs(known.process)

    def share(self, own: Mapping[str, PartState]) -> Mapping[str, PartState]:
        """Record what this worker knows. Returns what is known about each part, which is what was found out last."""
        self._join(own)
        return self._known

    def _join(self, own: Mapping[str, PartState]) -> Mapping[str, PartState]:
        """Record states that are not older than the known ones. Returns those that were known before."""
        before = self._known

        def change(data: bytes) -> bytes:
            nonlocal before
            before = _decode(data)
            newer = {part: new for part, new in own.items() if part not in before or before[part].at <= new.at}
            self._known = dict([*(before | newer).items()][-MAX_PARTS:])
            return msgspec.msgpack.encode(self._known)

        self._memory.change(change, waits=True)
        return before


def _decode(data: bytes) -> dict[str, PartState]:
    return msgspec.msgpack.decode(data, type=dict[str, PartState]) if data else {}


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
