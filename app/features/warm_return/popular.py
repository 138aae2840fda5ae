"""Which names are requested most: a bounded count of uses, without dates and without clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: Names that are kept.
MOST_NAMES: Final = 10_000
#: Names that are counted. Then the less used half is forgotten, and the counts of the others are halved.
_MOST_COUNTED: Final = 2 * MOST_NAMES
#: Characters of a name that is counted.
_MOST_CHARACTERS: Final = 200
#: Uses from which a name is kept.
_LEAST_USES: Final = 2


class PopularNames:
    """The uses of names by their keys."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}

    def count(self, key: str) -> None:
        """Count a use of a name."""
        uses = self._uses.get(key)
        if uses is None:
            if len(key) > _MOST_CHARACTERS:
                return
            if len(self._uses) >= _MOST_COUNTED:
                self._forget_rare()
        self._uses[key] = (uses or 0) + 1

    def list(self) -> list[str]:
        """The names with at least two uses, the most used first."""
        return [key for key in _most_used(self._uses) if self._uses[key] >= _LEAST_USES]

    def clear(self) -> None:
        """Forget every name."""
        self._uses = {}

    def _forget_rare(self) -> None:
        """Scans of many names, each used once, do not displace what is used again and again."""
        self._uses = {key: self._uses[key] // 2 for key in _most_used(self._uses)}


def _most_used(uses: Mapping[str, int]) -> list[str]:
    # In one turn of the event loop. `heapq.nlargest` takes 20 ms for half of 20,000 names, and this takes 3 ms.
    return sorted(uses, key=uses.__getitem__, reverse=True)[:MOST_NAMES]


def write_names(names: Iterable[str], before: bytes | None) -> bytes:
    """The note with these names first, then those that it had."""
    merged = dict.fromkeys((*names, *read_names(before)))
    return "\n".join(list(merged)[:MOST_NAMES]).encode()


def read_names(note: bytes | None) -> list[str]:
    """The names of a note that can be counted. A name can have a line separator of Unicode, so only LF ends one."""
    lines = (note or b"").decode("utf-8", "replace").split("\n", MOST_NAMES)
    return [key for key in lines[:MOST_NAMES] if 0 < len(key) <= _MOST_CHARACTERS]
