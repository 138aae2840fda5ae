"""Reads DOI records of DataCite: the public and the monthly data file, and pages of the REST API.

A file has one record on each line; older files are arrays. Of a record, `attributes.doi`, `attributes.url`,
`attributes.state` and `attributes.updated` are read (DataCite Support, "DataCite Public Data File").
"""

from __future__ import annotations

from typing import Final

import msgspec

from doi_proxy.features.registry.json_values import JsonReader
from doi_proxy.features.registry.record import RecordDates, RegistryRecord, make_record, parse_date

AGENCY: Final = "DataCite"
#: The state of a DOI name that is not registered in the handle system yet (DataCite Support, "DOI States").
_DRAFT: Final = "draft"


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
        super().__init__(_Record, _members, _to_record)


def _members(record: _Record) -> list[_Record] | None:
    """The records of a document. An answer about one name has an object in place of a list."""
    return [record.data] if isinstance(record.data, _Record) else record.data


def _to_record(record: _Record, dates: RecordDates) -> RegistryRecord | None:
    fields = record.attributes or _Attributes()
    if fields.state == _DRAFT:
        return None
    return make_record(fields.doi or record.id, fields.url, AGENCY, dates.of(parse_date(fields.updated)))
