"""Detects by its first bytes whether a file is compressed, and the format of its records."""

from __future__ import annotations

import re
from typing import Final

from app.features.registry.reading import RegistryFormat

#: RFC 1952, section 2.3.1.
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
#: The record of DataCite has its fields in an object of its own.
_DATACITE: Final = re.compile(rb'"attributes"\s*:\s*\{')
#: A work of Crossref spells this member in capitals.
_CROSSREF: Final = re.compile(rb'"DOI"\s*:\s*"')
#: The first members of the lines of a bundle.
_BUNDLE: Final = re.compile(rb'\s*\{\s*"(?:bundle|handle|checksum|sha256|delta)"\s*:')


def is_gzip(head: bytes) -> bool:
    """Whether data that begins with `head` is compressed by gzip."""
    return head.startswith(_GZIP)


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
