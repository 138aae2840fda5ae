"""The bytes of an entry: a struct header and the values in the stores, one line of JSON in a bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from app.cache.entry import Entry
from app.doi.name import HandleName
from app.errors import DamagedEntry, InvalidAnswer, InvalidName
from app.handle.answer import Answer, ResponseCode
from app.handle.record import read_values

#: The version of the stores' format. An entry of another version is a miss. In version 1 the checksum left out the key.
FORMAT_VERSION: Final = 2
_WITHOUT_KEY: Final = 1
#: The last second of the year 9999, which is the last that ISO 8601 can tell, in seconds since the epoch.
FOREVER: Final = 253_402_300_799.0

#: CRC-32 of the key and of what follows: version, response code, fetched, fresh until, stale until, the values.
_CHECK: Final = Struct("<I")
_HEAD: Final = Struct("<IBBddd")
_BODY: Final = Struct("<BBddd")
_CODES: Final = {int(code): code for code in ResponseCode}


def pack(entry: Entry) -> bytes:
    """An entry without its key, as the stores keep it."""
    answer = entry.answer
    times = entry.fetched_at, entry.fresh_until, entry.stale_until
    body = _BODY.pack(FORMAT_VERSION, answer.code, *times) + answer.values
    return _CHECK.pack(_checksum(entry.key, body)) + body


def unpack(key: str, data: object) -> Entry | None:
    """The entry that `pack` wrote under this key; None for one of another format version.

    Raises DamagedEntry for data that are not bytes, a wrong checksum and times that are not 0 to FOREVER.
    """
    # SQLite gives back whatever type a damaged row says it is.
    if not isinstance(data, bytes) or len(data) < _HEAD.size:
        raise DamagedEntry(f"The store's entry of {key!r} is damaged: it is too short, or not bytes.")
    check, version, code, *times = _HEAD.unpack_from(data)
    body = memoryview(data)[_CHECK.size :]
    if _checksum(key, body) != check:
        if version == _WITHOUT_KEY and crc32(body) == check:
            return None
        raise DamagedEntry(f"The store's entry of {key!r} is damaged, or belongs to another name.")
    if version != FORMAT_VERSION:
        return None
    # A comparison with NaN is false.
    if code not in _CODES or not all(0.0 <= time <= FOREVER for time in times):
        raise DamagedEntry(f"The store's entry of {key!r} is damaged: its response code or its times cannot be.")
    return Entry(key, Answer(_CODES[code], data[_HEAD.size :]), *times)


def _checksum(key: str, body: bytes | memoryview) -> int:
    return crc32(body, crc32(key.encode(errors="surrogatepass")))


class InvalidBundleLine(ValueError):
    """A line of a bundle is no record; the message says what is wrong with it."""


_NO_VALUES: Final = msgspec.Raw(b"")


class _Line(msgspec.Struct, gc=False):
    handle: str
    responseCode: int = 1
    # In a union with None, msgspec takes null alone.
    values: msgspec.Raw = _NO_VALUES
    fetched: str | None = None
    fresh_until: str | None = None
    stale_until: str | None = None


_decoder: Final = msgspec.json.Decoder(_Line)


def to_line(entry: Entry) -> bytes:
    """An entry as one line of a bundle, with its newline. Times are ISO 8601 in UTC, exact to a microsecond."""
    return b'{"handle":%b,"responseCode":%d,"values":%b,"fetched":"%b","fresh_until":"%b","stale_until":"%b"}\n' % (
        msgspec.json.encode(entry.key),
        entry.answer.code,
        entry.answer.values,
        _written(entry.fetched_at),
        _written(entry.fresh_until),
        _written(entry.stale_until),
    )


def from_line(line: bytes, *, expired_at: float = 0.0) -> Entry:
    """Read one line of a bundle. Raises InvalidBundleLine.

    Without times, as in a file written by hand, the record was fetched and ended at `expired_at` (seconds since the
    epoch), so that it is asked for where that is possible, and usable for ever where it is not.
    """
    try:
        wire = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidBundleLine(f"not JSON of a record: {error}") from error
    try:
        key = HandleName(wire.handle).key
    except InvalidName as error:
        raise InvalidBundleLine(error.message) from error
    fetched_at = _read_time("fetched", wire.fetched, expired_at)
    return Entry(
        key=key,
        answer=_read_answer(wire),
        fetched_at=fetched_at,
        fresh_until=_read_time("fresh_until", wire.fresh_until, fetched_at),
        stale_until=_read_time("stale_until", wire.stale_until, FOREVER),
    )


def _read_answer(wire: _Line) -> Answer:
    code = _CODES.get(wire.responseCode)
    if code is None:
        raise InvalidBundleLine(f"response code {wire.responseCode} is none that answers a question")
    if code is not ResponseCode.SUCCESS:
        return Answer(code)
    if not bytes(wire.values):
        raise InvalidBundleLine("the record has no values")
    values = msgspec.json.format(bytes(wire.values), indent=-1)
    try:
        record = read_values(values)
    except InvalidAnswer as error:
        raise InvalidBundleLine(f"{error.message} {error.detail}".strip()) from error
    return Answer(code, values) if record.values else Answer(ResponseCode.VALUES_NOT_FOUND)


def _written(when: float) -> bytes:
    moment = datetime.fromtimestamp(min(max(when, 0.0), FOREVER), UTC)
    return moment.isoformat().removesuffix("+00:00").encode() + b"Z"


def _read_time(member: str, given: str | None, missing: float) -> float:
    if given is None:
        return missing
    try:
        when = datetime.fromisoformat(given)
        return min(max((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), 0.0), FOREVER)
    except (ValueError, OverflowError) as error:
        raise InvalidBundleLine(f"{member} {given[:40]!r} is no ISO 8601 time") from error
