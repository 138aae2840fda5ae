"""Reads works of Crossref: the public data file, the snapshots, and pages of the REST API.

A file is a document `{"items": [...]}`, or has one work on each line. Of a work, `DOI`, `resource.primary.URL` and
`indexed` (else `deposited`) are read. `URL` is the address at doi.org, which says nothing about the target (Crossref
REST API, "works").
"""

from __future__ import annotations

from typing import Final

import msgspec

from app.features.registry.json_values import JsonReader
from app.features.registry.record import RecordDates, RegistryRecord, make_record, parse_date

AGENCY: Final = "Crossref"
_MILLISECONDS: Final = 1_000


class _Primary(msgspec.Struct, gc=False):
    URL: str | None = None


class _Resource(msgspec.Struct, gc=False):
    primary: _Primary | None = None


class _Moment(msgspec.Struct, gc=False, rename={"date_time": "date-time"}):
    #: Milliseconds since the epoch.
    timestamp: int | float | None = None
    date_time: str | None = None


class _Page(msgspec.Struct, gc=False):
    items: list[_Work] | None = None


class _Work(msgspec.Struct, gc=False):
    DOI: str | None = None
    resource: _Resource | None = None
    indexed: _Moment | None = None
    deposited: _Moment | None = None
    #: Only a document has these.
    items: list[_Work] | None = None
    message: _Page | None = None


class CrossrefReader(JsonReader[_Work]):
    """Reads the blocks of a file of Crossref."""

    def __init__(self) -> None:
        super().__init__(_Work, _members, _to_record)


def _to_record(work: _Work, dates: RecordDates) -> RegistryRecord:
    url = work.resource.primary.URL if work.resource and work.resource.primary else None
    return make_record(work.DOI, url, AGENCY, dates.of(_date_of(work)))


def _members(work: _Work) -> list[_Work] | None:
    if work.items is not None:
        return work.items
    return None if work.message is None else work.message.items


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
