"""Bundles: records as lines of JSON, for export, import and seeding, with a checksum at the end.

The first line begins with `{"bundle":1,`, the format. The last line is `{"checksum":"sha256:<hex>","lines":<N>}`. It
covers the bytes of the N lines before it, including their newlines. A file written by hand may omit both, and a file
may contain several bundles, one after the other.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, Self, cast

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.cache.entry import FOREVER, Entry
from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.system.files import STANDARD_OUTPUT, Replacement, is_replaceable, open_null, open_output
from handle_protocol.errors import UnusableAnswer
from handle_protocol.referral import Answer, ResponseCode
from handle_protocol.value import read_values

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


_line_decoder: Final = msgspec.json.Decoder(_Line)


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
        wire = _line_decoder.decode(line)
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


class OutputFile:
    """A file that gets its name when it is complete. `-` is standard output. A name with `.gz` is compressed."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ConfigurationError if it cannot be written."""
        self._name = path
        self._replacement: Replacement | None = None
        self._is_complete = False
        self._files = ExitStack()
        self.file: BinaryIO = sys.stdout.buffer
        try:
            if path != STANDARD_OUTPUT:
                self.file = self._open(Path(path))
        except OSError as error:
            raise ConfigurationError(f"--output {path}: cannot be written: {error.strerror or error}") from error
        if path.endswith(".gz"):
            # Level of gzip. Level 9 takes three times as long, and its output is less than 2 % smaller.
            self.file = cast(BinaryIO, gzip.GzipFile("", "wb", 6, self.file, mtime=0))

    def _open(self, path: Path) -> BinaryIO:
        if not is_replaceable(path):
            return self._files.enter_context(os.fdopen(open_output(path), "wb"))
        self._replacement = self._files.enter_context(Replacement(path))
        return self._replacement.file

    def keep(self) -> None:
        """Keep the file at the end, because its content is complete."""
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Close the file. Raises DoiProxyError for an OSError, and BrokenPipeError if the reader is gone."""
        try:
            self._close()
        except BrokenPipeError:
            raise
        except OSError as failure:
            error = failure
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise DoiProxyError(f"{self._name}: cannot be written: {error.strerror or error}") from error

    def _close(self) -> None:
        with self._files:
            try:
                self.file.flush()
                if isinstance(self.file, gzip.GzipFile):
                    self.file.close()
                if self._is_complete and self._replacement is not None:
                    self._replacement.put()
            except BrokenPipeError:
                # The reader is gone. The interpreter flushes the rest of the buffer at its end, which must not fail.
                os.dup2(open_null(), sys.stdout.fileno())
                raise


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
