"""What a registration agency's file says about one DOI name: its URL, and when that was true."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

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


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """The URL of a DOI name, according to the file of an agency. `make_record` checks what it holds."""

    name: HandleName
    url: str
    #: "Crossref", "DataCite", or what a CSV file says. Empty if it does not say.
    agency: str
    #: When the file or the record says that it was true, in seconds since the epoch.
    date: int


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


def make_record(doi: str | None, url: str | None, agency: str, date: int) -> RegistryRecord:
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
    return RegistryRecord(name, url, agency, date)


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
