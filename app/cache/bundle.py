"""Bundles: records as lines of JSON, for export, import and seeding, with a checksum at the end.

The last line is `{"checksum":"sha256:<hex>","lines":<N>}`, over the bytes of the N lines before it, newlines
included. A file written by hand may lack it, and bundles may be put one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import BinaryIO, Final

import msgspec

from app.cache.entry import Entry
from app.cache.wire import InvalidBundleLine, from_line, to_line

#: A longer line is refused, in bytes. It is also the default of the largest upstream answer.
LONGEST_LINE: Final = 4 * 1024 * 1024


class Checksum(Enum):
    """What the checksum lines of a bundle say about it."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was left out: its number, from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class BundleEnd:
    """The whole bundle was read: lines (without checksum lines and blank ones), refused ones, and the checksum."""

    lines: int
    refused: int
    checksum: Checksum


class _ChecksumLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    checksum: str
    lines: int


_decoder: Final = msgspec.json.Decoder(_ChecksumLine)


class BundleWriter:
    """Writes entries to a binary file, one at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = sha256()
        self.lines = 0

    def add(self, entry: Entry) -> None:
        """Write one entry."""
        line = to_line(entry)
        self._sum.update(line)
        self._file.write(line)
        self.lines += 1

    def finish(self) -> None:
        """Write the checksum line; the file stays open."""
        end = _ChecksumLine(f"sha256:{self._sum.hexdigest()}", self.lines)
        self._file.write(msgspec.json.encode(end) + b"\n")


def read_bundle(file: BinaryIO, *, expired_at: float = 0.0) -> Iterator[Entry | Refused | BundleEnd]:
    """Read a bundle line by line: entries, the lines that had to be refused, and a BundleEnd as the last item.

    `expired_at`: see from_line. Never raises for what the file holds; OSError of the file passes.
    """
    return _Reading(file, expired_at).items()


class _Reading:
    def __init__(self, file: BinaryIO, expired_at: float) -> None:
        self._file = file
        self._expired_at = expired_at
        self._sum = sha256()
        self._summed = 0  # lines since the beginning or the last checksum line
        self._total = 0
        self._refused = 0
        self._checksum = Checksum.ABSENT

    def items(self) -> Iterator[Entry | Refused | BundleEnd]:
        number = 0
        while line := self._file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                self._count(line)
                self._skip_rest()
                item: Entry | Refused | None = Refused(number, f"longer than {LONGEST_LINE} bytes")
            else:
                item = self._item(number, line)
            if item is not None:
                self._refused += isinstance(item, Refused)
                yield item
        # Lines behind the last checksum line are vouched for by nobody.
        unverified = self._checksum is Checksum.RIGHT and self._summed > 0
        yield BundleEnd(self._total, self._refused, Checksum.ABSENT if unverified else self._checksum)

    def _item(self, number: int, line: bytes) -> Entry | Refused | None:
        if line.startswith(b'{"checksum"'):
            return self._verified(number, line)
        if not line.strip():
            self._sum.update(line)
            return None
        self._count(line)
        try:
            return from_line(line, expired_at=self._expired_at)
        except InvalidBundleLine as error:
            return Refused(number, str(error))

    def _count(self, line: bytes) -> None:
        self._sum.update(line)
        self._summed += 1
        self._total += 1

    def _skip_rest(self) -> None:
        while rest := self._file.readline(LONGEST_LINE):
            self._sum.update(rest)
            if rest.endswith(b"\n"):
                return

    def _verified(self, number: int, line: bytes) -> Refused | None:
        found, lines = f"sha256:{self._sum.hexdigest()}", self._summed
        self._sum, self._summed = sha256(), 0
        try:
            told = _decoder.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            self._checksum = Checksum.WRONG
            return Refused(number, f"not a checksum line: {error}")
        if (told.checksum, told.lines) != (found, lines):
            self._checksum = Checksum.WRONG
            return Refused(number, f"the checksum is that of {told.lines} other lines; {lines} lines were read")
        if self._checksum is Checksum.ABSENT:
            self._checksum = Checksum.RIGHT
        return None
