"""A name as a page shows it: what kind it is, its forms, and its text in a title."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import decode, to_uri, url_path
from doi_proxy.web.shown_values import HANDLE_RESOLVER

#: Names in one list of a page, and questionable code points.
MAX_ITEMS_SHOWN: Final = 10


#: A name in the title of a page, in characters.
MAX_TITLE_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class ShownName:
    """A name as a page shows and links it. `kind` is "doi", "prefix" or "handle"; `uri` is None if it has none."""

    text: str
    kind: str
    uri: str | None
    public_url: str
    path: str


def show_name(name: HandleName) -> ShownName:
    """What a page shows of a name."""
    kind = "doi" if name.is_doi or name.is_short_doi else "prefix" if name.is_prefix else "handle"
    path, resolver = url_path(name), HANDLE_RESOLVER if kind == "handle" else "https://doi.org"
    return ShownName(name.text, kind, to_uri(name) if name.is_doi else None, f"{resolver}/{path}", path)


def show_names(names: Sequence[HandleName]) -> list[ShownName]:
    """The first names of a list, as many as a page shows."""
    return [show_name(name) for name in names[:MAX_ITEMS_SHOWN]]


def title_text(text: str) -> str:
    """A name in the title of a page, shortened."""
    # Markup in a title cannot isolate an override of the writing direction, so all formatting characters are replaced.
    short = text if len(text) <= MAX_TITLE_CHARACTERS else text[: MAX_TITLE_CHARACTERS - 1] + "…"
    if short.isprintable():
        return short
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cf", "Cc") else c for c in short)


def readable(typed: str) -> str:
    """What was typed, without its escapes. If they cannot be read, or a form would read other text, it is unchanged."""
    try:
        text = decode(typed)
    except InvalidName:
        return typed
    return text if text.isprintable() and "%" not in text else typed
