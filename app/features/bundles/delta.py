"""A delta: what a store wrote since a cursor, as lines of a bundle between a first and a last line of its own.

{"delta":1,"since":"…"}
{"handle":…}                        a record, as in any bundle; `earlier` are the targets that it had, the newest first
{"registry":"10.1000/1","url":…}    a record of a registration agency
{"purged":"10.1000/2","at":…}       a purge of a name, of a prefix with a slash at its end, or of everything ("")
{"forgotten":"10.1000/3"}           a name that left the agencies' files
{"next":"…","more":true}            the cursor of the next delta, and whether it has lines already
{"checksum":…}
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from app.cache.entry import FOREVER, Entry
from app.doi.name import HandleName
from app.errors import InvalidName, InvalidParameter
from app.features.bundles.lines import InvalidBundleLine, format_time, to_line
from app.features.registry.record import (
    LAST_DATE,
    MAX_AGENCY_CHARACTERS,
    InvalidRegistryRecord,
    RegistryRecord,
    make_record,
)

#: The version of the format. A reader refuses another one.
VERSION: Final = 1
#: The longest cursor, in characters. A name has at most 2,048 bytes.
MAX_CURSOR: Final = 4_096

_CURSOR: Final = re.compile(
    r"c1\.([0-9a-f]{16})\.([0-9]{1,18})\.([erl])\.([A-Za-z0-9_-]*)(?:\.([0-9a-f]{8}))?", re.ASCII
)
_FIRST_MEMBERS: Final = (b'{"delta"', b'{"registry"', b'{"purged"', b'{"forgotten"', b'{"next"')


class DeltaStage(StrEnum):
    """Which table is read next. A first pull reads all entries, then all registry records, then the log."""

    ENTRIES = "e"
    REGISTRY = "r"
    LOG = "l"


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in what a store has written: its log up to `number`, and the rows of a table up to the key `after`."""

    #: Identifies the log: a store that was created again has another one.
    origin: str
    number: int
    stage: DeltaStage = DeltaStage.LOG
    after: str = ""
    #: A checksum of the row `number` of the log. A store that was restored from a backup has another row there. Empty
    #: for a log without rows, and in a cursor of an earlier release.
    mark: str = ""

    def __str__(self) -> str:
        after = urlsafe_b64encode(self.after.encode()).decode().rstrip("=")
        return f"c1.{self.origin}.{self.number}.{self.stage}.{after}" + (f".{self.mark}" if self.mark else "")


def parse_cursor(text: str) -> Cursor:
    """Read a cursor. Raises InvalidParameter."""
    match = _CURSOR.fullmatch(text[: MAX_CURSOR + 1]) if len(text) <= MAX_CURSOR else None
    try:
        if match is None:
            raise ValueError
        origin, number, stage, after, mark = match.groups()
        key = urlsafe_b64decode(after + "=" * (-len(after) % 4)).decode()
    except ValueError as error:
        raise InvalidParameter(f"{text[:60]!r} is not a cursor; send the one of the last delta, or none.") from error
    return Cursor(origin, int(number), DeltaStage(stage), key, mark or "")


class DeltaStart(msgspec.Struct, frozen=True):
    """The first line: the version, and the cursor or time at which the delta begins. Empty for everything."""

    delta: int
    since: str = ""


class DeltaPurge(msgspec.Struct, frozen=True, rename={"scope": "purged"}):
    """A purge of a scope (see app/cache/purges.py) at a time, in seconds since the epoch."""

    scope: str
    at: float


class Forgotten(msgspec.Struct, frozen=True, rename={"key": "forgotten"}):
    """A registry record that left its agency's files."""

    key: str


class _Earlier(msgspec.Struct, gc=False):
    url: str
    seen: str
    replaced: str


class DeltaEnd(msgspec.Struct, frozen=True):
    """The cursor of the next delta, and whether that has lines already."""

    next: str
    more: bool


class _Registry(msgspec.Struct):
    registry: str
    url: str
    agency: str
    date: int


#: A target, when it was last confirmed, and when another one replaced it, in seconds since the epoch.
_EarlierTarget = tuple[str, float, float]
#: A change of a store.
DeltaChange = Entry | RegistryRecord | DeltaPurge | Forgotten
#: A line of a delta that is not a record of the cache.
DeltaItem = DeltaStart | RegistryRecord | DeltaPurge | Forgotten | DeltaEnd

_Line = DeltaStart | _Registry | DeltaPurge | Forgotten | DeltaEnd
_LINES: Final[tuple[msgspec.json.Decoder[_Line], ...]] = (
    msgspec.json.Decoder(DeltaStart),
    msgspec.json.Decoder(_Registry),
    msgspec.json.Decoder(DeltaPurge),
    msgspec.json.Decoder(Forgotten),
    msgspec.json.Decoder(DeltaEnd),
)


def delta_line(item: DeltaItem | Entry, earlier: Sequence[_EarlierTarget] = ()) -> bytes:
    """Write a line of a delta, with its newline. `earlier` are the earlier targets of an entry, the newest first.

    All releases ignore a member of a record that they do not know, and refuse a line that they do not know.
    """
    match item:
        case Entry():
            line = to_line(item)
            return line if not earlier else b'%b,"earlier":%b}\n' % (line[:-2], _write_earlier(earlier))
        case RegistryRecord():
            return _encode(_Registry(item.name.key, item.url, item.agency, item.date))
        case _:
            return _encode(item)


def _encode(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _write_earlier(earlier: Sequence[_EarlierTarget]) -> bytes:
    return msgspec.json.encode(
        [_Earlier(url, format_time(seen).decode(), format_time(until).decode()) for url, seen, until in earlier]
    )


def is_delta_line(line: bytes) -> bool:
    """Whether a line is one of `read_delta_line`."""
    return line.startswith(_FIRST_MEMBERS)


def read_delta_line(line: bytes) -> DeltaItem:
    """Read a line of a delta that is not a record of the cache. Raises InvalidBundleLine."""
    place = next(number for number, first in enumerate(_FIRST_MEMBERS) if line.startswith(first))
    try:
        return _to_item(_LINES[place].decode(line))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidBundleLine):
            raise
        raise InvalidBundleLine(f"not a valid line of a delta: {error}") from error
    except InvalidName as error:
        raise InvalidBundleLine(error.message) from error


def _to_item(line: _Line) -> DeltaItem:
    match line:
        case DeltaStart():
            if line.delta != VERSION:
                raise InvalidBundleLine(f"a delta of version {line.delta}; this doi-proxy reads version {VERSION}")
            return line
        case _Registry():
            return _read_registry(line)
        case DeltaPurge():
            return DeltaPurge(_read_scope(line.scope), min(max(line.at, 0.0), FOREVER))
        case Forgotten():
            return Forgotten(HandleName(line.key).key)
        case DeltaEnd():
            if len(line.next) > MAX_CURSOR:
                raise InvalidBundleLine(f"its cursor is longer than {MAX_CURSOR} characters")
            return line


def _read_registry(line: _Registry) -> RegistryRecord:
    if not 0 <= line.date <= LAST_DATE:
        raise InvalidBundleLine(f"the date {line.date} is not in the years 1970 to 9999")
    if len(line.agency) > MAX_AGENCY_CHARACTERS or not line.agency.isprintable():
        raise InvalidBundleLine("the name of the agency is too long, or has control characters")
    try:
        return make_record(line.registry, line.url, line.agency, line.date)
    except InvalidRegistryRecord as error:
        raise InvalidBundleLine(str(error)) from error


def _read_scope(text: str) -> str:
    """The scope of a purge: a key, a prefix with a slash at its end, or everything. Raises InvalidName."""
    if not text:
        return text
    if text.endswith("/") and "/" not in text[:-1]:
        return HandleName(text[:-1]).key + "/"
    return HandleName(text).key
