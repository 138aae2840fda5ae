"""The serialization of an entry as one line of JSON in a bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, Entry
from handle_protocol.answer import Answer, ResponseCode
from handle_protocol.errors import UnusableAnswer
from handle_protocol.record import read_values

_CODES: Final = {int(code): code for code in ResponseCode}


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
        format_time(entry.fetched_at),
        format_time(entry.fresh_until),
        format_time(entry.stale_until),
    )


def from_line(line: bytes) -> Entry:
    """Read one line of a bundle. Raises InvalidBundleLine.

    A line without times, as in a file written by hand, has the times 0: it is not known when an upstream confirmed
    it. The upstream is queried about it if possible; otherwise the record stays usable for ever.
    """
    try:
        wire = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidBundleLine(f"not a valid JSON record: {error}") from error
    try:
        key = HandleName(wire.handle).key
    except InvalidName as error:
        raise InvalidBundleLine(error.message) from error
    fetched_at = _parse_time("fetched", wire.fetched, 0.0)
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
    except UnusableAnswer as error:
        raise InvalidBundleLine(f"{error.message} {error.detail}".strip()) from error
    return Answer(code, values) if record.values else Answer(ResponseCode.VALUES_NOT_FOUND)


def format_time(when: float) -> bytes:
    """A time in ISO 8601, UTC. `when` is in seconds since the epoch."""
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
