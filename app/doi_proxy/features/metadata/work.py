"""A work as its registration agency describes it: read from CSL JSON, and kept in a line of the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from html import unescape
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from doi_names.name import fold
from doi_proxy.features.metadata.cited import is_notice

#: Characters of a title that are kept.
MAX_TITLE: Final = 500
#: Markup inside titles, such as <i> and <mml:math>. A font between two letters separates words, an index does not.
_FONT: Final = re.compile(r"(?<=\w)</?(?:i|b|em|strong|italic|bold|scp|u|tt)>(?=\w)")
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
#: Types of what corrects another work. What comments on one has a title that says so, or is a work of its own.
_NOTICES: Final = frozenset({"correction", "corrigendum", "erratum", "retraction"})


class Work(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an agency says about a work. What it does not say is "" or None.

    `authors` are family names, or organisations if it `is_group`. `page` is the first one, or an article number.
    """

    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    subtitle: str = ""
    container: str = ""
    volume: str = ""
    issue: str = ""
    page: str = ""
    last_page: str = ""
    type: str = ""
    is_group: bool = False
    #: Whether it is a correction of another work, a comment on it, or the like.
    is_notice: bool = False

    @property
    def full_title(self) -> str:
        """The title with its subtitle."""
        return f"{self.title}: {self.subtitle}" if self.subtitle else self.title

    @property
    def names(self) -> str:
        """The authors for a reader."""
        return ", ".join(self.authors[:3]) + (" …" if len(self.authors) > 3 else "")

    @property
    def place(self) -> str:
        """Where it was published, for a reader: container, volume, issue and pages."""
        issue = f"({self.issue})" if self.issue else ""
        pages = f"{self.page}\N{EN DASH}{self.last_page}" if self.last_page else self.page
        return ", ".join(filter(None, (f"{self.container} {self.volume}{issue}".strip(), pages)))


class _Csl(msgspec.Struct, gc=False, rename={"doi": "DOI", "container": "container-title", "update_to": "update-to",
                                             "article_number": "article-number"}):  # fmt: skip
    """The members that are read. All others are skipped."""

    doi: Any = None
    title: Any = None
    subtitle: Any = None
    author: Any = None
    editor: Any = None
    issued: Any = None
    container: Any = None
    volume: Any = None
    issue: Any = None
    page: Any = None
    article_number: Any = None
    type: Any = None
    relation: Any = None
    update_to: Any = None


def read_work(data: bytes, names: Collection[str] = ()) -> Work | None:
    """The work in a CSL JSON item, None if it has no title that can be read, or is about another DOI.

    `names` are the keys of those that it may be about. Raises nothing for any bytes.
    """
    try:
        item = msgspec.json.decode(data, type=_Csl)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if names and isinstance(item.doi, str):
        doi = re.sub(r"^\s*(?:https?://(?:dx\.)?doi\.org/|doi:)?\s*", "", item.doi[:4_096], flags=re.IGNORECASE)
        if fold(doi.rstrip()) not in names:
            return None
    title = re.sub(r"^(?:RETRACTED|WITHDRAWN)(?: ARTICLE)?:\s*", "", _read_text(_first(item.title), MAX_TITLE))
    if not title:
        return None
    people = next((people for people in (item.author, item.editor) if isinstance(people, list | dict) and people), [])
    found = [_read_name(person) for person in (people if isinstance(people, list) else [people])[:8]]
    pages = re.sub(r"[\u2010-\u2015]", "-", _read_text(item.page, 40) or _read_text(item.article_number, 40))
    page, _, last_page = pages.partition("-")
    kind = _read_text(item.type, 30)
    relations = item.relation if isinstance(item.relation, dict) else {}
    volume, issue = (
        _read_text(str(value) if type(value) is int and abs(value) < 10**9 else value, 20)
        for value in (item.volume, item.issue)
    )
    return Work(
        title,
        tuple(name for name, _ in found if name),
        _read_year(item.issued),
        _read_text(_first(item.subtitle), MAX_TITLE - len(title)) if len(title) < MAX_TITLE - 20 else "",
        _read_text(_first(item.container), 120),
        volume,
        issue,
        page.strip(),
        last_page.strip(),
        kind,
        is_group=any(is_group for name, is_group in found[:1]),
        is_notice=is_notice(title)
        or kind in _NOTICES
        or bool(item.update_to or {"is-correction-of", "is-retraction-of"} & relations.keys()),
    )


def _read_name(author: object) -> tuple[str, bool]:
    """A name, and whether it is that of an organisation, or of a person who is known by it as a whole."""
    if not isinstance(author, dict):
        return "", False
    family = _read_text(author.get("family"), 40)
    other = _read_text(author.get("literal"), 100) or _read_text(author.get("name"), 100)
    return family or other, bool(other and not family)


def _read_year(issued: object) -> int | None:
    """The year of {"date-parts": [[2020, 1, 2]]}. Some agencies write numbers as strings."""
    found = issued.get("date-parts") if isinstance(issued, dict) else None
    for _ in range(2):
        found = _first(found)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) == 4:
        found = int(found)
    is_year = isinstance(found, int) and not isinstance(found, bool) and found in range(1000, 2200)
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
    # Characters of a text that are read. Markup takes the rest.
    text = _strip_tags(unescape(_strip_tags(value[:4_096])))
    text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _strip_tags(text: str) -> str:
    return _TAG.sub("", _FONT.sub(" ", text)) if "<" in text else text


class KeptWork(NamedTuple):
    """A work, and when it was fetched, in seconds since the epoch."""

    fetched_at: float
    work: Work


#: Works in the note, and the bytes of each.
_MAX_WORKS: Final = 4_096
_MAX_BYTES: Final = 600
_KEPT: Final = msgspec.json.Decoder(tuple[float, Work])


def read_works(note: bytes | None) -> Iterator[tuple[str, KeptWork]]:
    """The works of a note by key, the newest first. A line of another form is left out."""
    for line in islice((note or b"").split(b"\n", _MAX_WORKS), _MAX_WORKS):
        try:
            key, kept = line.split(b"\t", 1)
            yield key.decode(), KeptWork(*_KEPT.decode(kept))
        except (msgspec.MsgspecError, ValueError):
            continue


def write_works(works: Mapping[str, KeptWork], before: bytes | None, is_usable: Callable[[str, float], bool]) -> bytes:
    """The note with these works and those that it had, as far as they are usable. The oldest are left out."""
    merged = {**dict(read_works(before)), **works}
    newest = sorted(merged.items(), key=lambda item: item[1].fetched_at, reverse=True)
    lines: list[bytes] = []
    room = 1024 * 1024
    for key, kept in newest:
        line = _write_line(key, kept)
        room -= len(line) + 1
        if room < 0 or len(lines) >= _MAX_WORKS:
            break
        if len(line) < _MAX_BYTES and is_usable(key, kept.fetched_at):
            lines.append(line)
    return b"\n".join(lines)


def _write_line(key: str, kept: KeptWork) -> bytes:
    """A line with the key first, by which a purge finds it. A long one loses authors."""
    line = b"%s\t%s" % (key.encode(), msgspec.json.encode(kept))
    if len(line) < _MAX_BYTES or len(kept.work.authors) <= 3:
        return line
    fewer = msgspec.structs.replace(kept.work, authors=kept.work.authors[:3], subtitle="")
    return _write_line(key, KeptWork(kept.fetched_at, fewer))
