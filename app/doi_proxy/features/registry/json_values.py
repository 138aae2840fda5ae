"""Reads the records of a block of JSON: one on each line, or one document with a list of them.

The fast path decodes a whole block at once, and only the fields that are needed. If one value has an unexpected
shape, the block is read again value by value, so only that value is refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName

#: The longest URL that is stored, in bytes of UTF-8. A redirect has no longer target.
MAX_URL_BYTES: Final = 16_384
#: The longest name of an agency in a CSV file, in characters.
MAX_AGENCY_CHARACTERS: Final = 64
#: The last second of the year 9999, in seconds since the epoch.
LAST_DATE: Final = 253_402_300_799
#: General categories Cc and Cs, as in a name.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: The longest part of a bad text that a reason repeats, in characters.
_SHOWN: Final = 60


#: The URL of a DOI name, according to the file of an agency, as `make_record` checks it: the key of the name, when the
#: file or the record says that it was true (in seconds since the epoch), the agency, and the URL. The agency is
#: "Crossref", "DataCite", or what a CSV file says, empty if it does not say.
RegistryRow = tuple[str, int, str, str]


class InvalidRegistryRecord(ValueError):
    """A record of a file is not usable. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class RecordDates:
    """The date of records without a date of their own, and the latest date that is plausible.

    A date in the future would win over every later file, so it counts as `latest`.
    """

    default: int
    latest: int

    def of(self, date: int | None) -> int:
        """The date of a record, from the one in the file."""
        return max(0, min(self.default if date is None else date, self.latest, LAST_DATE))


def make_record(doi: str | None, url: str | None, agency: str, date: int) -> RegistryRow:
    """Check the fields of a record. Blanks around them are removed. Raises InvalidRegistryRecord."""
    if not doi:
        raise InvalidRegistryRecord("it has no DOI name")
    try:
        name = HandleName(doi.strip())
    except InvalidName as error:
        raise InvalidRegistryRecord(f"{show(doi)}: {error.message}") from error
    if not name.is_doi:
        raise InvalidRegistryRecord(f"{show(doi)} is not a DOI name")
    url = url.strip() if url else ""
    if not url:
        raise InvalidRegistryRecord(f"{show(doi)} has no URL")
    # Only a long text needs to be encoded to know its size.
    if len(url) * 4 > MAX_URL_BYTES and len(url.encode(errors="surrogatepass")) > MAX_URL_BYTES:
        raise InvalidRegistryRecord(f"{show(doi)}: its URL is longer than {MAX_URL_BYTES} bytes")
    if not url.isprintable() and _FORBIDDEN.search(url):
        raise InvalidRegistryRecord(f"{show(doi)}: its URL contains a control character")
    return name.key, date, agency, url


def parse_date(text: str | None) -> int | None:
    """Read a date or time of ISO 8601, in seconds since the epoch. Without a zone it is UTC. None if it is not one."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def show(text: str) -> str:
    """A text for a message: short, and without control characters."""
    return repr(text[:_SHOWN] + "..." if len(text) > _SHOWN else text)


#: Limit of the reasons that are remembered for one block. Further refused records are only counted.
MAX_REASONS: Final = 20
_MARK: Final = b"\xef\xbb\xbf"
#: The record of DataCite has its fields in an object of its own.
_DATACITE: Final = re.compile(rb'"attributes"\s*:\s*\{')
#: A work of Crossref spells this member in capitals.
_CROSSREF: Final = re.compile(rb'"DOI"\s*:\s*"')
#: The first members of the lines of a bundle.
_BUNDLE: Final = re.compile(rb'\s*\{\s*"(?:bundle|handle|checksum|sha256)"\s*:')


class RegistryFormat(StrEnum):
    """The shape of an agency's file."""

    CROSSREF = "crossref"
    DATACITE = "datacite"
    CSV = "csv"


@dataclass(slots=True)
class Findings:
    """The records of a block, how many were read, and the first reasons why others were refused.

    A draft is a DOI name that is not registered yet, so no handle record exists (DataCite Support, "DOI States").
    """

    records: list[RegistryRow] = field(default_factory=list)
    read: int = 0
    drafts: int = 0
    refused: int = 0
    #: Records with further URLs, which a registry record has no place for.
    several: int = 0
    reasons: list[str] = field(default_factory=list)

    def refuse(self, reason: str) -> None:
        """Count the record that was read last as refused."""
        self.refused += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(f"record {self.read}: {reason}")


def is_list_of_states(head: bytes) -> bool:
    """Whether data is a list of DataCite's names and their states, without URLs: one is beside each month's records."""
    columns = head.removeprefix(_MARK).partition(b"\n")[0].lower().rstrip(b"\r").split(b",")
    return columns[:2] == [b"doi", b"state"] and b"url" not in columns


def detect_format(head: bytes) -> RegistryFormat | None:
    """The format of records that begin with `head`. None for a bundle and for an unknown format."""
    head = head.removeprefix(_MARK).lstrip()
    if not head.startswith((b"{", b"[")):
        first_line = head.partition(b"\n")[0].lower()
        has_columns = b"doi" in first_line and b"url" in first_line
        return RegistryFormat.CSV if has_columns or first_line.startswith((b"10.", b'"10.')) else None
    if _BUNDLE.match(head):
        return None
    places = {
        form: found.start()
        for form, pattern in ((RegistryFormat.DATACITE, _DATACITE), (RegistryFormat.CROSSREF, _CROSSREF))
        if (found := pattern.search(head))
    }
    return min(places, key=lambda form: places[form]) if places else None


_BOM: Final = b"\xef\xbb\xbf"
_DELIMITERS: Final = (",", ";", "\t")
_COLUMNS: Final = ("doi", "url", "agency", "date")


class InvalidTable(ValueError):
    """The first line does not say which columns hold the names and the URLs. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """The delimiter of a table, and the positions of its columns. -1 means that the table does not have the column."""

    delimiter: str
    doi: int
    url: int
    agency: int
    date: int
    #: Whether the first line names the columns.
    has_header: bool


def read_table_form(first_line: bytes) -> TableForm:
    """The form of a table, from its first line. Raises InvalidTable."""
    text = first_line.removeprefix(_BOM).decode("utf-8", "replace").strip("\r\n")
    delimiter = max(_DELIMITERS, key=text.count)
    try:
        cells = [cell.strip().lower() for cell in _cells(text, delimiter)]
    except csv.Error as error:
        raise InvalidTable(f"the first line cannot be read: {error}") from error
    if "doi" in cells:
        doi, url, agency, date = (cells.index(column) if column in cells else -1 for column in _COLUMNS)
        if url < 0:
            raise InvalidTable("the table has no column `url`; name the columns doi,url in its first line")
        return TableForm(delimiter, doi, url, agency, date, has_header=True)
    if not cells[0].startswith("10.") or len(cells) < 2:
        raise InvalidTable("the first line does not name the columns; begin the table with a line `doi,url`")
    doi, url, agency, date = (place if place < len(cells) else -1 for place in range(len(_COLUMNS)))
    return TableForm(delimiter, doi, url, agency, date, has_header=False)


class TableReader:
    """Reads the blocks of a table, from its first line. A block ends at the end of a line."""

    def __init__(self, form: TableForm) -> None:
        self._form = form
        self._is_header_due = form.has_header

    def read(self, block: bytes, dates: RecordDates, findings: Findings) -> None:
        """Add the records of a block to the findings. Raises nothing."""
        lines = block.removeprefix(_BOM).split(b"\n")
        if self._is_header_due:
            del lines[0]
            self._is_header_due = False
        for line in lines:
            if not line.strip():
                continue
            findings.read += 1
            try:
                findings.records.append(self._record(line, dates))
            except InvalidRegistryRecord as error:
                findings.refuse(str(error))

    def _record(self, line: bytes, dates: RecordDates) -> RegistryRow:
        form = self._form
        try:
            cells = _cells(line.decode().rstrip("\r"), form.delimiter)
        except UnicodeDecodeError as error:
            raise InvalidRegistryRecord("the row is not UTF-8") from error
        except csv.Error as error:
            raise InvalidRegistryRecord(f"the row cannot be read: {error}") from error

        def cell(place: int) -> str:
            return cells[place] if 0 <= place < len(cells) else ""

        agency = cell(form.agency).strip()
        if len(agency) > MAX_AGENCY_CHARACTERS or not agency.isprintable():
            raise InvalidRegistryRecord(f"{show(agency)} is not the name of an agency")
        date = parse_date(text) if (text := cell(form.date).strip()) else None
        if text and date is None:
            raise InvalidRegistryRecord(f"{show(text)} is not a date of ISO 8601")
        return make_record(cell(form.doi), cell(form.url), agency, dates.of(date))


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of a row. A quoted cell cannot contain the end of a line. Raises csv.Error."""
    if '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter), [""])


#: The start of the message about a value that is not JSON.
_NOT_JSON: Final = "it is not valid JSON"

Value = TypeVar("Value")


_ABSENT: Final = msgspec.Raw()


class _RawPage(msgspec.Struct, gc=False):
    """A document whose values, or whose only value, are in one of these members."""

    items: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    message: msgspec.Raw = _ABSENT


class JsonReader(Generic[Value]):
    """Reads the blocks of a file whose values are of one type, a msgspec struct.

    A block ends at the end of a line, or is a whole document.
    """

    def __init__(
        self,
        kind: Any,
        members: Callable[[Value], list[Value] | None],
        to_record: Callable[[Value, RecordDates], RegistryRow | None],
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
        """Add the records of a block to the findings. Raises nothing."""
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
    # Levels of members around the values. An answer of Crossref's REST API has two: `message` and `items`.
    for _ in range(2):
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


AGENCY: Final = "Crossref"
#: The end of the reason for a work that does not say where its name leads.
NO_TARGET: Final = "has no resource.primary.URL"
_MILLISECONDS: Final = 1_000
_NO_VALUE: Final = msgspec.Raw()


class _Primary(msgspec.Struct, gc=False):
    URL: str | None = None


class _Resource(msgspec.Struct, gc=False):
    primary: _Primary | None = None
    #: Further URLs: doi.org shows a page to choose from. A registry record has one URL.
    secondary: msgspec.Raw = _NO_VALUE


class _Moment(msgspec.Struct, gc=False, rename={"date_time": "date-time"}):
    #: Milliseconds since the epoch.
    timestamp: int | float | None = None
    date_time: str | None = None


class _Work(msgspec.Struct, gc=False):
    DOI: str | None = None
    resource: _Resource | None = None
    indexed: _Moment | None = None
    deposited: _Moment | None = None
    #: Only a document has these.
    items: list[_Work] | None = None
    message: _Work | None = None


class CrossrefReader(JsonReader[_Work]):
    """Reads the blocks of a file of Crossref."""

    def __init__(self) -> None:
        super().__init__(_Work, _members, _to_record, _has_locations)


def _to_record(work: _Work, dates: RecordDates) -> RegistryRow:
    url = work.resource.primary.URL if work.resource and work.resource.primary else None
    if work.DOI and not url:
        raise InvalidRegistryRecord(f"{show(work.DOI)} {NO_TARGET}")
    return make_record(work.DOI, url, AGENCY, dates.of(_date_of(work)))


def _members(work: _Work) -> list[_Work] | None:
    """The works of a document. An answer of the REST API has its list, or its only work, in `message`."""
    if work.message is not None:
        return [work.message] if work.message.items is None else work.message.items
    return work.items


def _has_locations(work: _Work) -> bool:
    if work.resource is None or work.resource.secondary is _NO_VALUE:
        return False
    return bytes(work.resource.secondary) not in (b"[]", b"null")


def _date_of(work: _Work) -> int | None:
    """When Crossref last indexed the work, else when the member last deposited it."""
    for moment in (work.indexed, work.deposited):
        if moment is None:
            continue
        if moment.timestamp is not None:
            return int(moment.timestamp // _MILLISECONDS)
        if (date := parse_date(moment.date_time)) is not None:
            return date
    return None


DATACITE: Final = "DataCite"


class _Attributes(msgspec.Struct, gc=False):
    doi: str | None = None
    url: str | None = None
    state: str | None = None
    updated: str | None = None


class _Record(msgspec.Struct, gc=False):
    id: str | None = None
    attributes: _Attributes | None = None
    #: Only a document has this.
    data: list[_Record] | _Record | None = None


class DataCiteReader(JsonReader[_Record]):
    """Reads the blocks of a file of DataCite."""

    def __init__(self) -> None:
        super().__init__(_Record, _datacite_members, _read_datacite_record)


def _datacite_members(record: _Record) -> list[_Record] | None:
    """The records of a document. An answer about one name has an object in place of a list."""
    return [record.data] if isinstance(record.data, _Record) else record.data


def _read_datacite_record(record: _Record, dates: RecordDates) -> RegistryRow | None:
    fields = record.attributes or _Attributes()
    # The state of a DOI name that is not registered in the handle system yet (DataCite Support, "DOI States").
    if fields.state == "draft":
        return None
    return make_record(fields.doi or record.id, fields.url, DATACITE, dates.of(parse_date(fields.updated)))


BlockReader = CrossrefReader | DataCiteReader | TableReader
