"""The formats of agencies' files, and what a reader finds in one block."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from doi_proxy.features.registry.record import RecordDates, RegistryRecord

#: Limit of the reasons that are remembered for one block. Further refused records are only counted.
MAX_REASONS: Final = 20
_BOM: Final = b"\xef\xbb\xbf"
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

    records: list[RegistryRecord] = field(default_factory=list)
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


class BlockReader(Protocol):
    """Reads the records of a file, block by block. A block ends at the end of a line, or is a whole document."""

    def read(self, block: bytes, dates: RecordDates, findings: Findings) -> None:
        """Add the records of a block to the findings. Raises nothing."""


def is_list_of_states(head: bytes) -> bool:
    """Whether data is a list of DataCite's names and their states, without URLs: one is beside each month's records."""
    columns = head.removeprefix(_BOM).partition(b"\n")[0].lower().rstrip(b"\r").split(b",")
    return columns[:2] == [b"doi", b"state"] and b"url" not in columns


def detect_format(head: bytes) -> RegistryFormat | None:
    """The format of records that begin with `head`. None for a bundle and for an unknown format."""
    head = head.removeprefix(_BOM).lstrip()
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
