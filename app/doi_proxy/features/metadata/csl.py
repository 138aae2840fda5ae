"""Reads a work from CSL JSON (citationstyles.org, CSL 1.0.2, appendix IV). Nothing in it is trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import Any, Final

import msgspec

#: Characters of a title and of a name that are kept.
MAX_TITLE: Final = 500
MAX_NAME: Final = 100
#: Characters of a text that are read. Markup takes the rest.
_MAX_READ: Final = 4_096
#: Markup inside titles, such as <i> and <mml:math>.
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_YEARS: Final = range(1000, 2200)


@dataclass(frozen=True, slots=True)
class Work:
    """What an agency says about a work. `author` is the family name of the first one, or an organisation, or ""."""

    title: str
    author: str = ""
    year: int | None = None


class _Csl(msgspec.Struct, gc=False):
    """The members that are read. All others are skipped."""

    title: Any = None
    author: Any = None
    issued: Any = None


def read_work(data: bytes) -> Work | None:
    """The work in a CSL JSON item, None if it has no title that can be read. Raises nothing for any bytes."""
    try:
        item = msgspec.json.decode(data, type=_Csl)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    title = _read_text(_first(item.title), MAX_TITLE)
    return Work(title, _read_author(_first(item.author)), _read_year(item.issued)) if title else None


def _read_author(author: object) -> str:
    if not isinstance(author, dict):
        return ""
    names = (_read_text(author.get(member), MAX_NAME) for member in ("family", "literal", "name"))
    return next(filter(None, names), "")


def _read_year(issued: object) -> int | None:
    """The year of {"date-parts": [[2020, 1, 2]]}. Some agencies write numbers as strings."""
    found = issued.get("date-parts") if isinstance(issued, dict) else None
    for _ in range(2):
        found = _first(found)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) == 4:
        found = int(found)
    is_year = isinstance(found, int) and not isinstance(found, bool) and found in _YEARS
    return found if is_year else None


def _first(value: object) -> object:
    """The first item of a list, and any other value itself."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _read_text(value: object, most: int) -> str:
    """A text without markup and line breaks, in one line."""
    if not isinstance(value, str):
        return ""
    text = _TAG.sub("", unescape(_TAG.sub("", value[:_MAX_READ])))
    text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
