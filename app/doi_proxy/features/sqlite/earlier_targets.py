"""The last targets that a name had before its present one. The row of its entry has them, so they leave with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from doi_proxy.cache.entry import Entry
from doi_proxy.errors import DamagedEntry
from doi_proxy.resolver.resolution import read_record
from doi_proxy.store.file import connect_to_read
from doi_proxy.store.stored_entry import unpack
from doi_proxy.web.shown_values import find_target
from handle_protocol.answer import ResponseCode

#: Targets of one name that are kept.
MAX_TARGETS: Final = 3
#: Longer targets are not kept, in characters.
_MAX_CHARACTERS: Final = 2_048
#: Larger records are not compared, in bytes of JSON.
_MAX_BYTES: Final = 65_536
_READ: Final = "SELECT earlier FROM entries WHERE key = ?"


class EarlierTarget(NamedTuple):
    """A target that a name had: when it was last confirmed, and when an answer with another one replaced it.

    Both are in seconds since the epoch.
    """

    target: str
    seen: float
    replaced: float


_decoder: Final = msgspec.json.Decoder(tuple[EarlierTarget, ...])


def read_earlier_targets(path: Path, key: str) -> tuple[EarlierTarget, ...]:
    """The earlier targets of a name, the newest first. Blocks. Without a file that can be read there are none."""
    try:
        with closing(connect_to_read(path)) as connection:
            row = connection.execute(_READ, (key,)).fetchone()
    except (sqlite3.Error, OSError):
        return ()
    return () if row is None else _decode(row[0])


def add_earlier_target(entry: Entry, data: object, earlier: object) -> bytes | None:
    """What the row of a new entry has, from what it replaces: the stored bytes, and the earlier targets of those."""
    replaced = _find_replaced(entry, data)
    if replaced is None:
        return earlier if isinstance(earlier, bytes) else None
    return msgspec.json.encode([replaced, *_decode(earlier)][:MAX_TARGETS])


def _decode(earlier: object) -> tuple[EarlierTarget, ...]:
    # A damaged row can have a value of any type.
    if not isinstance(earlier, bytes):
        return ()
    try:
        return _decoder.decode(earlier)[:MAX_TARGETS]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()


def _find_replaced(entry: Entry, data: object) -> EarlierTarget | None:
    """The target of the stored entry, if the new one has another target."""
    try:
        known = unpack(entry.key, data)
    except DamagedEntry:
        return None
    if known is None or known.answer.values == entry.answer.values:
        return None
    before, after = _target_of(known), _target_of(entry)
    if not before or not after or before == after:
        return None
    return EarlierTarget(before, known.fetched_at, entry.fetched_at)


def _target_of(entry: Entry) -> str | None:
    if entry.answer.code is not ResponseCode.SUCCESS or len(entry.answer.values) > _MAX_BYTES:
        return None
    target = find_target(read_record(entry.answer.values).values)
    return target if target is not None and len(target) <= _MAX_CHARACTERS else None
