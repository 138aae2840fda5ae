"""Reads the records of a block of JSON: one on each line, or one document with a list of them.

The fast path decodes a whole block at once, and only the fields that are needed. If one value has an unexpected
shape, the block is read again value by value, so only that value is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from doi_proxy.features.registry.reading import Findings
from doi_proxy.features.registry.record import InvalidRegistryRecord, RecordDates, RegistryRecord

#: The start of the message about a value that is not JSON.
_NOT_JSON: Final = "it is not valid JSON"

Value = TypeVar("Value")


_ABSENT: Final = msgspec.Raw()
#: Levels of members around the values. An answer of Crossref's REST API has two: `message` and `items`.
_LEVELS: Final = 2


class _RawPage(msgspec.Struct, gc=False):
    """A document whose values, or whose only value, are in one of these members."""

    items: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    message: msgspec.Raw = _ABSENT


class JsonReader(Generic[Value]):
    """Reads the blocks of a file whose values are of one type, a msgspec struct. See BlockReader."""

    def __init__(
        self,
        kind: Any,
        members: Callable[[Value], list[Value] | None],
        to_record: Callable[[Value, RecordDates], RegistryRecord | None],
        has_locations: Callable[[Value], bool] = lambda value: False,
    ) -> None:
        """`members` gives the values that a document contains, None if it is a value itself.

        `to_record` returns None for a draft, and raises InvalidRegistryRecord. `has_locations` says whether a value has
        further URLs, which are counted.
        """
        self._decoder: msgspec.json.Decoder[Value | list[Value]] = msgspec.json.Decoder(kind | list[kind])
        self._members = members
        self._to_record = to_record
        self._has_locations = has_locations

    def read(self, block: bytes, dates: RecordDates, findings: Findings) -> None:
        """See BlockReader."""
        to_record, has_locations, records = self._to_record, self._has_locations, findings.records
        for value in self._read_fast(block) or self._read_slowly(block):
            findings.read += 1
            if isinstance(value, str):
                findings.refuse(value)
                continue
            try:
                record = to_record(value, dates)
            except InvalidRegistryRecord as error:
                findings.refuse(str(error))
                continue
            if record is None:
                findings.drafts += 1
            else:
                findings.several += has_locations(value)
                records.append(record)

    def _read_fast(self, block: bytes) -> list[Value | str] | None:
        """All values of a block, None if one of them cannot be read."""
        try:
            found = self._decoder.decode_lines(block)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        values: list[Value | str] = []
        for line_value in found:
            self._add(line_value, values)
        return values

    def _add(self, line_value: Value | list[Value], values: list[Value | str]) -> None:
        if isinstance(line_value, list):
            values += line_value
        elif (inner := self._members(line_value)) is not None:
            values += inner
        else:
            values.append(line_value)

    def _read_slowly(self, block: bytes) -> Iterator[Value | str]:
        try:
            # One document, which can have several lines.
            values = _list_of(block)
        except (msgspec.DecodeError, RecursionError, ValueError):
            values = [line for line in block.split(b"\n") if line.strip()]
        for value in values:
            yield from self._decode(value)

    def _decode(self, value: bytes | msgspec.Raw) -> Iterator[Value | str]:
        try:
            found = self._decoder.decode(value)
        except msgspec.ValidationError as error:
            yield f"it has an unexpected shape: {error}"
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            yield f"{_NOT_JSON}: {error}"
        else:
            values: list[Value | str] = []
            self._add(found, values)
            yield from values


def _list_of(document: bytes) -> list[bytes] | list[msgspec.Raw]:
    """The values of a document as text. Raises msgspec.DecodeError and ValueError."""
    for _ in range(_LEVELS):
        if document.lstrip()[:1] == b"[":
            break
        page = msgspec.json.decode(document, type=_RawPage)
        members = (bytes(member) for member in (page.items, page.data, page.message))
        inner = next((member for member in members if member[:1] in (b"[", b"{")), None)
        if inner is None:
            return [document]
        document = inner
    if document.lstrip()[:1] == b"[":
        return msgspec.json.decode(document, type=list[msgspec.Raw])
    return [document]
