"""Reads the dump of a handle server: one JSON object, or names that are followed by their values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from handle_protocol.errors import InvalidDump


class _Dump(msgspec.Struct):
    """`{"homedPrefixes": […], "handleRecords": {"10.1000/1": {"handle": …, "values": […]}}}`."""

    records: dict[str, msgspec.Raw] = msgspec.field(name="handleRecords")


class _StoredRecord(msgspec.Struct):
    values: msgspec.Raw = msgspec.Raw(b"null")


def read_dump(content: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    """The handles of a dump, and the JSON of their values. Raises InvalidDump if the dump is not complete.

    The JSON of a record is complete, but nothing of it is checked.
    """
    # The first bytes of a compressed file (RFC 1952, section 2.3.1).
    if content.startswith(b"\x1f\x8b"):
        raise InvalidDump("the dump is compressed; unpack it")
    content = content.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that some editors write
    return _read_json(content) if re.match(rb"\s*\{", content) else _read_list(content)


def _read_json(content: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    try:
        dump = msgspec.json.decode(content, type=_Dump)
    except UnicodeDecodeError as error:
        raise InvalidDump("the dump is not UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidDump(f"the dump cannot be read: {str(error)[:200]}") from error
    for handle, record in dump.records.items():
        try:
            yield handle, msgspec.json.decode(record, type=_StoredRecord).values
        except msgspec.ValidationError:  # it is not an object
            yield handle, msgspec.Raw(b"null")


def _read_list(content: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    """A line with a handle, the array of its values, and an empty line."""
    place = "before its first record"
    for block in re.split(rb"\n[ \t\r]*\n", content):
        line, _, values = block.strip().partition(b"\n")
        if not line:
            continue
        try:
            handle = line.decode().rstrip()
            record = msgspec.json.decode(values, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise InvalidDump(f"{place}: the dump cannot be read: {str(error)[:200]}") from error
        place = f"after the record of {handle[:200]!r}"
        yield handle, record
