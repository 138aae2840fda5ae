"""The fields of a form of type multipart/form-data (RFC 7578). Bounded by the size of its body, read in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MULTIPART: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(r'multipart/form-data\s*;.*boundary="?([^\s";,]{1,70})', re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r';\s*name="([^"]{0,100})"', re.IGNORECASE)
_FILE_NAME: Final = re.compile(r';\s*filename="([^"]{0,400})"', re.IGNORECASE)
#: Fields that are read. A form of ours has two.
_MAX_FIELDS: Final = 8
_MAX_HEAD_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class FormField:
    """The value of a field, and the name of the file that it is, "" for a text."""

    data: bytes
    file_name: str = ""


def read_multipart(content_type: str, body: bytearray) -> dict[str, FormField] | None:
    """The fields before the last delimiter, the first of each name. None for a body of another type."""
    found = _BOUNDARY.match(content_type.strip())
    if found is None:
        return None
    fields: dict[str, FormField] = {}
    delimiter = b"\r\n--" + found[1].encode("utf-8", "replace")
    first, *parts = body.split(delimiter, _MAX_FIELDS)
    # The first delimiter may have no line before it. A copy of the body with one takes milliseconds.
    if first.startswith(delimiter[2:]):
        parts.insert(0, first[len(delimiter) - 2 :])
    for part in parts[:-1]:
        head, blank, data = part.partition(b"\r\n\r\n")
        if not blank or len(head) > _MAX_HEAD_BYTES:
            continue
        disposition = head.decode("utf-8", "replace")
        name, file_name = _NAME.search(disposition), _FILE_NAME.search(disposition)
        if name is not None:
            fields.setdefault(name[1], FormField(bytes(data), file_name[1] if file_name else ""))
    return fields
