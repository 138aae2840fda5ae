"""Reads the names of running text, as a list: each with the line on which it begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder
from doi_proxy.list_formats.encodings import open_decoder
from doi_proxy.list_formats.lines import ListItem, ReadItem


class RunningTextReader:
    """Every name in a text, in its order. See ListReader."""

    column = ""

    def __init__(self) -> None:
        self.keeps_entries = False
        self._decoder = open_decoder()
        self._finder = NameFinder()
        #: The characters that were read, and the places of line ends after the last name.
        self._read = 0
        self._ends = deque[int]()
        self._line = 1

    @property
    def lines(self) -> int:
        """See ListReader."""
        return self._line + len(self._ends)

    def feed(self, data: bytes) -> list[ReadItem]:
        """See ListReader."""
        return self._find(self._decoder.decode(data))

    def end(self) -> list[ReadItem]:
        """See ListReader."""
        items = self._find(self._decoder.decode(b"", final=True))
        for names in self._finder.end():
            items += self._number(names)
        return items

    def _find(self, text: str) -> list[ReadItem]:
        items: list[ReadItem] = []
        for start in range(0, len(text), BLOCK_CHARACTERS):
            block = text[start : start + BLOCK_CHARACTERS]
            self._ends.extend(self._read + at for at, character in enumerate(block) if character == "\n")
            self._read += len(block)
            items += self._number(self._finder.feed(block))
        return items

    def _number(self, names: Iterable[FoundName]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for name in names:
            while self._ends and self._ends[0] < name.start:
                self._ends.popleft()
                self._line += 1
            items.append(ListItem(name.text, self._line, found=name))
        return items
