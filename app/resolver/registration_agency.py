"""Reads the registration agency of a prefix from handle records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.doi.name import HandleName
from app.handle.record import Record

#: Agencies of the service handles that have no 10320/ra_name value.
KNOWN_SERVICES: Final = {
    "10.SERV/CROSSREF": "Crossref",
    "10.SERV/DEFAULT": "Crossref",
    "10.SERV/DATACITE": "DataCite",
    "10.SERV/ETH": "DataCite",
    "10.SERV/MEDRA": "mEDRA",
    "10.SERV/JALC": "JaLC",
    "10.SERV/ISTIC": "ISTIC",
    "10.SERV/KISTI": "KISTI",
    "10.SERV/EIDR": "EIDR",
    "10.SERV/AIRITI": "Airiti",
    "10.SERV/CNKI": "CNKI",
    "10.SERV/OP": "OP",
}
#: The statuses of the Which RA service. The last one is an addition of this program.
INVALID: Final = "Invalid DOI"
DOES_NOT_EXIST: Final = "DOI does not exist"
UNKNOWN: Final = "Unknown"
COULD_NOT_VERIFY: Final = "Could not verify"


def agency_name(services: Sequence[tuple[HandleName, Record]]) -> str | None:
    """Find the agency's name in the service handles of a prefix: in 10320/ra_name, else by the known handles."""
    for _, record in services:
        for value in record.of_type("10320/ra_name"):
            if value.text and value.text.strip():
                return value.text.strip()
    return next((KNOWN_SERVICES[name.key] for name, _ in services if name.key in KNOWN_SERVICES), None)
