"""Which registration agency a prefix belongs to, from the handle records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.doi.name import HandleName
from app.handle.record import Record

#: Names of agencies by their service handle, for service handles without a 10320/ra_name value.
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
#: The statuses of the Which RA service, and ours for what nobody could be asked.
INVALID: Final = "Invalid DOI"
DOES_NOT_EXIST: Final = "DOI does not exist"
UNKNOWN: Final = "Unknown"
COULD_NOT_VERIFY: Final = "Could not verify"


def agency_name(services: Sequence[tuple[HandleName, Record]]) -> str | None:
    """The agency's name in the records of a prefix's service handles: 10320/ra_name, else by the handle itself."""
    for _, record in services:
        for value in record.of_type("10320/ra_name"):
            if value.text and value.text.strip():
                return value.text.strip()
    return next((KNOWN_SERVICES[name.key] for name, _ in services if name.key in KNOWN_SERVICES), None)
