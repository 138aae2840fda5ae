"""The form of the page: a text, or a file."""

from __future__ import annotations

from doi_proxy.features.lists.references.errors import UnreadableReferences
from doi_proxy.web.multipart import FormField, read_multipart


def read_form(content_type: str, body: bytearray) -> FormField:
    """The file of a form, else its text. Raises UnreadableReferences for another media type.

    A form in percent-encoding is refused: 4 MB of it take 700 ms.
    """
    fields = read_multipart(content_type, body)
    if fields is None:
        raise UnreadableReferences("form")
    file = fields.get("file")
    if file is not None and file.data:
        return file
    return fields.get("text", FormField(b""))


def read_typed_text(content_type: str, body: bytearray) -> str:
    """The text of a form that was refused, also of its beginning. "" if there is none, or if it is cut off."""
    typed = (read_multipart(content_type, body) or {}).get("text")
    return "" if typed is None else typed.data.decode("utf-8", "replace")
