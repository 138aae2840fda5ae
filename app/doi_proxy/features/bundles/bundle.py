"""Bundles: records as lines of JSON, for export, import and seeding, with a checksum at the end.

The first line begins with `{"bundle":1,`, the format. The last line is `{"checksum":"sha256:<hex>","lines":<N>}`. It
covers the bytes of the N lines before it, including their newlines. A file written by hand may omit both, and a file
may contain several bundles, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import BinaryIO, Final

import msgspec

from doi_proxy.cache.entry import Entry
from doi_proxy.features.bundles.lines import InvalidBundleLine, from_line, to_line

#: The format that is written and read.
BUNDLE_FORMAT: Final = 1
#: Limit of a line, in bytes. The values of a record have at most half of that.
MAX_LINE: Final = 512 * 1024


class Checksum(Enum):
    """The result of comparing a bundle with its checksum lines."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was left out: its number, from 1, and the reason."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class BundleEnd:
    """The end of a bundle: its lines (except checksum lines and blank lines), the refused ones, and the checksum."""

    lines: int
    refused: int
    checksum: Checksum


class _FirstLine(msgspec.Struct, gc=False):
    bundle: int


class _ChecksumLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    checksum: str
    lines: int


#: What `read_bundle` finds.
BundleItem = Entry | Refused | BundleEnd

_FIRST: Final = b'{"bundle"'
_first_decoder: Final = msgspec.json.Decoder(_FirstLine)
_decoder: Final = msgspec.json.Decoder(_ChecksumLine)


class BundleWriter:
    """Writes entries to a binary file, one at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = sha256()
        self.lines = 0

    def add(self, entry: Entry) -> None:
        """Write one entry. The first one has the format."""
        line = to_line(entry)
        if not self.lines:
            line = b"%b:%d,%b" % (_FIRST, BUNDLE_FORMAT, line[1:])
        self._sum.update(line)
        self._file.write(line)
        self.lines += 1

    def finish(self) -> None:
        """Write the checksum line. The file stays open."""
        end = _ChecksumLine(f"sha256:{self._sum.hexdigest()}", self.lines)
        self._file.write(msgspec.json.encode(end) + b"\n")


def read_bundle(file: BinaryIO) -> Iterator[BundleItem]:
    """Read a bundle line by line: entries, refused lines, and a BundleEnd as the last item.

    An invalid line is an item, not an exception. Raises OSError.
    """
    return _BundleReader(file).items()


class _BundleReader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = sha256()
        self._unchecked = 0  # lines since the start or the last checksum line
        self._total = 0
        self._refused = 0
        self._checksum = Checksum.ABSENT
        self._is_other = False

    def items(self) -> Iterator[BundleItem]:
        number = 0
        while line := self._file.readline(MAX_LINE):
            number += 1
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                self._count(line)
                self._skip_rest()
                item: BundleItem | None = Refused(number, f"longer than {MAX_LINE} bytes")
            else:
                item = self._item(number, line)
            if item is not None:
                self._refused += isinstance(item, Refused)
                yield item
            if self._is_other:
                break
        # No checksum covers the lines after the last checksum line.
        unverified = self._checksum is Checksum.RIGHT and self._unchecked > 0
        yield BundleEnd(self._total, self._refused, Checksum.ABSENT if unverified else self._checksum)

    def _item(self, number: int, line: bytes) -> BundleItem | None:
        if line.startswith(b'{"checksum"'):
            return self._check(number, line)
        if not line.strip():
            self._sum.update(line)
            return None
        self._count(line)
        if line.startswith(_FIRST) and (refusal := self._refuse_other(number, line)):
            return refusal
        try:
            return from_line(line)
        except InvalidBundleLine as error:
            return Refused(number, str(error))

    def _refuse_other(self, number: int, line: bytes) -> Refused | None:
        """A refusal if the bundle has another format. Its lines are not read."""
        try:
            found = _first_decoder.decode(line).bundle
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return Refused(number, f"not a valid first line: {error}")
        self._is_other = found != BUNDLE_FORMAT
        if not self._is_other:
            return None
        known = f"this doi-proxy reads format {BUNDLE_FORMAT}; use another doi-proxy"
        return Refused(number, f"the bundle has format {found}, and {known}")

    def _count(self, line: bytes) -> None:
        self._sum.update(line)
        self._unchecked += 1
        self._total += 1

    def _skip_rest(self) -> None:
        while rest := self._file.readline(MAX_LINE):
            self._sum.update(rest)
            if rest.endswith(b"\n"):
                return

    def _check(self, number: int, line: bytes) -> Refused | None:
        checksum, lines = f"sha256:{self._sum.hexdigest()}", self._unchecked
        self._sum, self._unchecked = sha256(), 0
        try:
            stated = _decoder.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            self._checksum = Checksum.WRONG
            return Refused(number, f"not a valid checksum line: {error}")
        if (stated.checksum, stated.lines) != (checksum, lines):
            self._checksum = Checksum.WRONG
            return Refused(
                number, f"the checksum (of {stated.lines} lines) does not match the {lines} lines that were read"
            )
        if self._checksum is Checksum.ABSENT:
            self._checksum = Checksum.RIGHT
        return None
