"""Reads the records of a block of JSON: one on each line, or one document with a list of them.

The fast path decodes a whole block at once, and only the fields that are needed. If one value has an unexpected
shape, the block is read again value by value, so only that value is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from app.features.registry.reading import Findings
from app.features.registry.record import InvalidRegistryRecord, RecordDates, RegistryRecord

#: The start of the message about a value that is not JSON.
_NOT_JSON: Final = "it is not valid JSON"

Value = TypeVar("Value")


class _RawPage(msgspec.Struct, gc=False):
    """A document whose list is in one of these members."""

    items: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None


class _RawMessage(msgspec.Struct, gc=False):
    """An answer of Crossref's REST API has its list one level deeper."""

    message: _RawPage | None = None


class JsonReader(Generic[Value]):
    """Reads the blocks of a file whose values are of one type, a msgspec struct. See BlockReader."""

    def __init__(
        self,
        kind: Any,
        members: Callable[[Value], list[Value] | None],
        to_record: Callable[[Value, RecordDates], RegistryRecord | None],
    ) -> None:
        """`members` gives the values that a document contains, None if it is a value itself.

        `to_record` returns None for a draft, and raises InvalidRegistryRecord.
        """
        self._decoder: msgspec.json.Decoder[Value | list[Value]] = msgspec.json.Decoder(kind | list[kind])
        self._members = members
        self._to_record = to_record

    def read(self, block: bytes, dates: RecordDates, findings: Findings) -> None:
        """See BlockReader."""
        to_record, records = self._to_record, findings.records
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
                records.append(record)

    def _read_fast(self, block: bytes) -> list[Value | str] | None:
        """All values of a block, None if one of them cannot be read."""
        try:
            found = self._decoder.decode_lines(block)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None
        values: list[Value | str] = []
        for one in found:
            self._add(one, values)
        return values

    def _add(self, one: Value | list[Value], values: list[Value | str]) -> None:
        if isinstance(one, list):
            values += one
        elif (inner := self._members(one)) is not None:
            values += inner
        else:
            values.append(one)

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
    if document.lstrip()[:1] == b"[":
        return msgspec.json.decode(document, type=list[msgspec.Raw])
    page = msgspec.json.decode(document, type=_RawPage)
    if page.items is None and page.data is None:
        page = msgspec.json.decode(document, type=_RawMessage).message or page
    values = page.items if page.items is not None else page.data
    return [document] if values is None else values
