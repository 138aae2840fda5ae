"""The handle of a prefix's record: that of the prefix 10.1000 is 0.NA/10.1000."""

from __future__ import annotations

from typing import Final

from doi_names.name import HandleName

#: What begins the handle of a prefix's record.
PREFIX_RECORDS: Final = "0.NA/"


def without_home(name: HandleName) -> HandleName:
    """The name by which the cache knows a record: that of a DOI prefix without "0.NA/", any other as it is."""
    prefix = name.text[len(PREFIX_RECORDS) :] if name.key.startswith(PREFIX_RECORDS) else ""
    found = HandleName(prefix) if prefix else name
    return found if found.is_prefix else name
