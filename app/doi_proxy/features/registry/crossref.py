"""Reads works of Crossref: the public data file, the snapshots, and pages of the REST API.

A file is a document `{"items": [...]}`, or has one work on each line. Of a work, `DOI`, `resource.primary.URL` and
`indexed` (else `deposited`) are read. `URL` is the address at doi.org, which says nothing about the target (Crossref
REST API, "works"). Files from before 2022 have no `resource`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from doi_proxy.features.registry import record
from doi_proxy.features.registry.json_values import JsonReader

AGENCY: Final = "Crossref"
#: The end of the reason for a work that does not say where its name leads.
NO_TARGET: Final = "has no resource.primary.URL"
_MILLISECONDS: Final = 1_000
_ABSENT: Final = msgspec.Raw()


class _Primary(msgspec.Struct, gc=False):
    URL: str | None = None


class _Resource(msgspec.Struct, gc=False):
    primary: _Primary | None = None
    #: Further URLs: doi.org shows a page to choose from. A registry record has one URL.
    secondary: msgspec.Raw = _ABSENT


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


def _to_record(work: _Work, dates: record.RecordDates) -> record.RegistryRecord:
    url = work.resource.primary.URL if work.resource and work.resource.primary else None
    if work.DOI and not url:
        raise record.InvalidRegistryRecord(f"{record.show(work.DOI)} {NO_TARGET}")
    return record.make_record(work.DOI, url, AGENCY, dates.of(_date_of(work)))


def _members(work: _Work) -> list[_Work] | None:
    """The works of a document. An answer of the REST API has its list, or its only work, in `message`."""
    if work.message is not None:
        return [work.message] if work.message.items is None else work.message.items
    return work.items


def _has_locations(work: _Work) -> bool:
    if work.resource is None or work.resource.secondary is _ABSENT:
        return False
    return bytes(work.resource.secondary) not in (b"[]", b"null")


def _date_of(work: _Work) -> int | None:
    """When Crossref last indexed the work, else when the member last deposited it."""
    for moment in (work.indexed, work.deposited):
        if moment is None:
            continue
        if moment.timestamp is not None:
            return int(moment.timestamp // _MILLISECONDS)
        if (date := record.parse_date(moment.date_time)) is not None:
            return date
    return None
