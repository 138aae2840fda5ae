"""The serialization of an entry: a binary header and the values in a store, one line of JSON in a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from app.cache.compression import compress, decompress
from app.cache.entry import FOREVER, Entry
from app.doi.name import HandleName
from app.errors import DamagedEntry, InvalidAnswer, InvalidName
from app.handle.answer import Answer, ResponseCode
from app.handle.record import read_values

#: The newest layout of an entry in a store. Every layout that was released is read for ever, so processes of two
#: releases can share a store. An entry of a later layout is a miss. A change of a layout needs a new number here, a
#: reader of the layout before, and a new STORE_FORMAT (docs/releases.md).
FORMAT_VERSION: Final = 3
_PLAIN: Final = 2
#: Release 0.1.0 wrote this layout. It is _PLAIN, with a checksum that omits the key.
_WITHOUT_KEY: Final = 1
#: Is added to the version of an entry whose answer was verified. An earlier release takes that for a miss, because it
#: would lose the proof.
_VERIFIED: Final = 0x80

#: CRC-32 of the key and of what follows: version, response code, fetched, then the two expiries and the values.
_CHECK: Final = Struct("<I")
#: Version 2: the expiries are seconds since the epoch, and the values are JSON.
_HEAD: Final = Struct("<IBBddd")
_BODY: Final = Struct("<BBddd")
#: Version 3: the expiries are whole seconds after `fetched`, rounded down, and the values are compressed.
_SHORT_HEAD: Final = Struct("<IBBdII")
_SHORT_BODY: Final = Struct("<BBdII")
#: In version 3: a hard expiry that never comes.
_NEVER: Final = 0xFFFF_FFFF
_CODES: Final = {int(code): code for code in ResponseCode}


def pack(entry: Entry) -> bytes:
    """Serialize an entry, without its key, for a store."""
    body = _pack_short(entry)
    if body is None:
        times = entry.fetched_at, entry.fresh_until, entry.stale_until
        body = _BODY.pack(_version(_PLAIN, entry), entry.answer.code, *times) + entry.answer.values
    return _CHECK.pack(_checksum(entry.key, body)) + body


def _pack_short(entry: Entry) -> bytes | None:
    """The body in version 3; None if it does not hold these times, or if there is nothing to compress.

    It is never shorter than the head of version 2, because an earlier release takes a shorter entry for a damaged one.
    """
    fresh, stale = entry.fresh_until - entry.fetched_at, entry.stale_until - entry.fetched_at
    is_endless = entry.stale_until == FOREVER
    # A comparison with NaN is false.
    if not (0.0 <= fresh < _NEVER and (is_endless or 0.0 <= stale < _NEVER)):
        return None
    if entry.answer.code is not ResponseCode.SUCCESS:
        return None
    ends = _NEVER if is_endless else int(stale)
    head = _SHORT_BODY.pack(_version(FORMAT_VERSION, entry), entry.answer.code, entry.fetched_at, int(fresh), ends)
    body = head + compress(entry.answer.values)
    return body if len(body) >= _BODY.size else None


def _version(layout: int, entry: Entry) -> int:
    return layout | _VERIFIED if entry.answer.is_verified else layout


def unpack(key: str, data: object) -> Entry | None:
    """Read the entry that this release or an earlier one wrote for this key. Returns None for a later layout.

    Raises DamagedEntry if the data is not bytes, the checksum is wrong, or a time is not in 0 to FOREVER.
    """
    # A damaged SQLite row can have any type.
    if not isinstance(data, bytes) or len(data) < _HEAD.size:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: it is too short, or not bytes.")
    check, version = int.from_bytes(data[: _CHECK.size], "little"), data[_CHECK.size]
    body = memoryview(data)[_CHECK.size :]
    # The version decides which checksum is right, so an entry of one layout is never read as one of another.
    if (crc32(body) if version == _WITHOUT_KEY else _checksum(key, body)) != check:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged, or belongs to another name: wrong checksum.")
    is_verified, layout = bool(version & _VERIFIED), version & ~_VERIFIED
    if layout == FORMAT_VERSION:
        return _unpack_short(key, data, is_verified)
    return _unpack_plain(key, data, is_verified) if layout == _PLAIN or version == _WITHOUT_KEY else None


def has_old_layout(data: object) -> bool:
    """Whether stored bytes have a layout that this release reads and no longer writes."""
    return isinstance(data, bytes) and data[_CHECK.size : _CHECK.size + 1] == bytes((_WITHOUT_KEY,))


def _unpack_short(key: str, data: bytes, is_verified: bool) -> Entry:
    _, _, code, fetched_at, fresh, stale = _SHORT_HEAD.unpack_from(data)
    try:
        values = decompress(data[_SHORT_HEAD.size :])
    except ValueError as error:
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: {error}.") from error
    ends = FOREVER if stale == _NEVER else fetched_at + stale
    return _build(key, code, values, (fetched_at, fetched_at + fresh, ends), is_verified)


def _unpack_plain(key: str, data: bytes, is_verified: bool) -> Entry:
    _, _, code, *times = _HEAD.unpack_from(data)
    return _build(key, code, data[_HEAD.size :], times, is_verified)


def _build(key: str, code: int, values: bytes, times: Sequence[float], is_verified: bool) -> Entry:
    # A comparison with NaN is false.
    if code not in _CODES or not all(0.0 <= time <= FOREVER for time in times):
        raise DamagedEntry(f"The store's entry for {key!r} is damaged: its response code or its times are invalid.")
    return Entry(key, Answer(_CODES[code], values, is_verified=is_verified), *times)


def _checksum(key: str, body: bytes | memoryview) -> int:
    return crc32(body, crc32(key.encode(errors="surrogatepass")))


class InvalidBundleLine(ValueError):
    """A line of a bundle is not a valid record. The message gives the reason."""


_NO_VALUES: Final = msgspec.Raw(b"")


class _Line(msgspec.Struct, gc=False):
    handle: str
    responseCode: int = 1
    # In a union with None, msgspec accepts only null.
    values: msgspec.Raw = _NO_VALUES
    fetched: str | None = None
    fresh_until: str | None = None
    stale_until: str | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def to_line(entry: Entry) -> bytes:
    """Write an entry as one line of a bundle, with its newline. Times are ISO 8601 in UTC with microseconds."""
    return b'{"handle":%b,"responseCode":%d,"values":%b,"fetched":"%b","fresh_until":"%b","stale_until":"%b"}\n' % (
        msgspec.json.encode(entry.key),
        entry.answer.code,
        entry.answer.values,
        _format_time(entry.fetched_at),
        _format_time(entry.fresh_until),
        _format_time(entry.stale_until),
    )


def from_line(line: bytes, *, expired_at: float = 0.0) -> Entry:
    """Read one line of a bundle. Raises InvalidBundleLine.

    A line without times, as in a file written by hand, counts as fetched and expired at `expired_at` (seconds since the
    epoch). The upstream is queried about it if possible; otherwise the record stays usable for ever.
    """
    try:
        wire = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidBundleLine(f"not a valid JSON record: {error}") from error
    try:
        key = HandleName(wire.handle).key
    except InvalidName as error:
        raise InvalidBundleLine(error.message) from error
    fetched_at = _parse_time("fetched", wire.fetched, expired_at)
    return Entry(
        key=key,
        answer=_parse_answer(wire),
        fetched_at=fetched_at,
        fresh_until=_parse_time("fresh_until", wire.fresh_until, fetched_at),
        stale_until=_parse_time("stale_until", wire.stale_until, FOREVER),
    )


def _parse_answer(wire: _Line) -> Answer:
    code = _CODES.get(wire.responseCode)
    if code is None:
        raise InvalidBundleLine(f"responseCode {wire.responseCode} is not 1, 100 or 200")
    if code is not ResponseCode.SUCCESS:
        return Answer(code)
    if not bytes(wire.values):
        raise InvalidBundleLine("the record has responseCode 1 (success) and no `values`")
    values = msgspec.json.format(bytes(wire.values), indent=-1)
    try:
        record = read_values(values)
    except InvalidAnswer as error:
        raise InvalidBundleLine(f"{error.message} {error.detail}".strip()) from error
    return Answer(code, values) if record.values else Answer(ResponseCode.VALUES_NOT_FOUND)


def _format_time(when: float) -> bytes:
    moment = datetime.fromtimestamp(min(max(when, 0.0), FOREVER), UTC)
    return moment.isoformat().removesuffix("+00:00").encode() + b"Z"


def _parse_time(member: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        when = datetime.fromisoformat(text)
        return min(max((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), 0.0), FOREVER)
    except (ValueError, OverflowError) as error:
        raise InvalidBundleLine(f"{member} {text[:40]!r} is not an ISO 8601 time") from error
