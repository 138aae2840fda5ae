"""What a reader finds in one block of an agency's file, and the formats that are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from app.features.registry.record import RecordDates, RegistryRecord

#: Limit of the reasons that are remembered for one block. Further refused records are only counted.
MAX_REASONS: Final = 20


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
