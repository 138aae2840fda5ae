"""The items of a list of names, and the limits of reading one."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

#: Characters of an unreadable item in its row.
MAX_EXCERPT: Final = 200
#: The longest line, CSV record or JSON value of a list, in bytes.
MAX_LINE_BYTES: Final = 65_536


class ListItem(msgspec.Struct, frozen=True, gc=False):
    """The text of one item, and the number of its line, from 1; of a JSON array, the number of the item."""

    text: str
    line: int


class UnreadableItem(msgspec.Struct, frozen=True, gc=False):
    """An item whose text cannot be read: its beginning, its number, and the reason as a sentence."""

    text: str
    line: int
    message: str


Item = ListItem | UnreadableItem


class ListReader(Protocol):
    """Reads a list in pieces. The borders of the pieces do not matter."""

    def feed(self, data: bytes) -> list[Item]:
        """The items that end in this piece. Raises UnreadableList."""

    def end(self) -> list[Item]:
        """The items at the end of the list. Raises UnreadableList. The reader is not used afterwards."""


def show(data: bytes) -> str:
    """The beginning of an item as text."""
    return data[:MAX_EXCERPT].decode("utf-8", "replace")
