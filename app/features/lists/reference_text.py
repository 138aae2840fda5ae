"""Shared by the readers of reference files, which ignore all text except names."""

from __future__ import annotations

from typing import Final

from app.errors import NotUTF8
from app.features.lists.item import MAX_EXCERPT, Item, ListItem, UnreadableItem

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def read_reference(item: ListItem) -> Item:
    """The item; unreadable if its bytes are not UTF-8. In the other fields of a file, such bytes do not matter."""
    if _REPLACEMENT not in item.text:
        return item
    return UnreadableItem(item.text[:MAX_EXCERPT], item.line, NotUTF8().message)


def trim_url(url: str) -> str:
    """Remove the punctuation after a URL in running text."""
    url = url.rstrip(".,;")
    return url.rstrip(")") if "(" not in url else url
