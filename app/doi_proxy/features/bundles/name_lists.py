"""The names of lists, for the commands on the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from doi_names.errors import InvalidName, NotUTF8
from doi_names.name import DOIName, HandleName
from doi_names.presentation import read_typed
from doi_proxy.list_formats.lines import NO_DOI, ListItem
from doi_proxy.list_formats.list_stream import ListSource, read_items, require_files
from doi_proxy.system.progress import shows_progress
from doi_proxy.system.standard_streams import STANDARD_INPUT

#: Limit of a line, in bytes. A longer line is refused.
MAX_LINE_BYTES: Final = 1024 * 1024
#: Limit of the names that are remembered to find repeated ones: about 120 MB. Then the memory starts empty again.
MAX_REMEMBERED: Final = 1_000_000
#: Characters of an unreadable item that a message shows.
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item of a list that is not a name: its place, its text, cut short, and the reason."""

    place: str
    text: str
    reason: str


NameItem = HandleName | RefusedItem


class UniqueNames:
    """The items of a list, with each name once: in its first spelling, compared by its canonical key."""

    def __init__(self, items: Iterable[NameItem], most: int = MAX_REMEMBERED) -> None:
        self._items = items
        self._most = most
        #: Names left out so far because they are repeated.
        self.repeated = 0

    def __iter__(self) -> Iterator[NameItem]:
        seen: set[str] = set()
        for item in self._items:
            if isinstance(item, HandleName):
                if item.key in seen:
                    self.repeated += 1
                    continue
                if len(seen) >= self._most:
                    seen.clear()
                seen.add(item.key)
            yield item


def read_lists(paths: Sequence[str], *, column: str | None = None, any_handle: bool = False) -> Iterator[NameItem]:
    """Read the names of lists, one list after the other. `-` is standard input.

    The name of a file decides its format (list_formats/list_stream.py). Handles that are not DOI names or shortDOIs
    need `any_handle`. Raises ConfigurationError now if a file does not exist, and during the iteration if it cannot be
    read to its end.
    """
    require_files(paths)
    return (
        item
        for path in paths
        for item in _read_list(ListSource(path, column=column, max_line_bytes=MAX_LINE_BYTES), any_handle)
    )


def count_names(lists: Sequence[str], column: str | None, any_handle: bool) -> int | None:
    """Count the names of lists. None if no bar is shown, or if a list cannot be read twice."""
    if STANDARD_INPUT in lists or not shows_progress():
        return None
    return sum(1 for _ in UniqueNames(read_lists(lists, column=column, any_handle=any_handle)))


def _read_list(source: ListSource, any_handle: bool) -> Iterator[NameItem]:
    for item in read_items(source):
        place = f"{source.path}, line {item.line}"
        if not isinstance(item, ListItem):
            if item.reason != NO_DOI:
                yield RefusedItem(place, item.text.strip()[:_SHOWN], item.message)
        elif item.text.strip():
            yield _read_item(place, item, any_handle)


def _read_item(place: str, item: ListItem, any_handle: bool) -> NameItem:
    text = item.text
    if item.found is not None:
        return item.found.name
    try:
        if item.note is not None:
            raise NotUTF8
        return read_name(text, any_handle=any_handle)
    except InvalidName as error:
        return RefusedItem(place, text.strip()[:_SHOWN], error.message)


def read_name(text: str, *, any_handle: bool = False) -> HandleName:
    """Read a name in any presentation form. Raises InvalidName; without `any_handle`, NotADOI for other handles."""
    name = read_typed(text)
    if any_handle or name.is_doi or name.is_short_doi:
        return name
    return DOIName.parse(name.text)
