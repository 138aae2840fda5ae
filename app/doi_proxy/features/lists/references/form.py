"""The form of the page: a text, or a file (RFC 7578). Bounded by the size of its body, and read in one pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from doi_proxy.features.lists.references.errors import UnreadableReferences

_BOUNDARY: Final = re.compile(r'multipart/form-data\s*;.*boundary="?([^\s";,]{1,70})', re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r';\s*name="([^"]{0,100})"', re.IGNORECASE)
_FILE_NAME: Final = re.compile(r';\s*filename="([^"]{0,400})"', re.IGNORECASE)
#: Fields that are read. The form has two.
_MAX_FIELDS: Final = 8
_MAX_HEAD_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class SentBibliography:
    """What a reader sent: bytes, and the name of the file, "" for a text in the form."""

    data: bytes
    file_name: str = ""


def read_form(content_type: str, body: bytearray) -> SentBibliography:
    """The file of a form, else its text. Raises UnreadableReferences for another media type.

    A form in percent-encoding is refused: 4 MB of it take 700 ms.
    """
    fields = _read_fields(content_type, body)
    file = fields.get("file")
    if file is not None and file.data:
        return file
    return fields.get("text", SentBibliography(b""))


def read_typed_text(content_type: str, body: bytearray) -> str:
    """The text of a form that was refused, also of its beginning. "" if there is none, or if it is cut off."""
    try:
        typed = _read_fields(content_type, body).get("text")
    except UnreadableReferences:
        return ""
    return "" if typed is None else typed.data.decode("utf-8", "replace")


def _read_fields(content_type: str, body: bytearray) -> dict[str, SentBibliography]:
    """The fields before the last delimiter."""
    found = _BOUNDARY.match(content_type.strip())
    if found is None:
        raise UnreadableReferences("form")
    fields: dict[str, SentBibliography] = {}
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
            fields.setdefault(name[1], SentBibliography(bytes(data), file_name[1] if file_name else ""))
    return fields
