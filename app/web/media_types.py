"""Media types, and the media type of a body (RFC 9110, section 8.3)."""

from __future__ import annotations

from typing import Final

BIBTEX: Final = "text/x-bibtex"
CSV: Final = "text/csv"
HTML: Final = "text/html"
JAVASCRIPT: Final = "application/javascript"
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PROBLEM: Final = "application/problem+json"
RIS: Final = "application/x-research-info-systems"
TEXT: Final = "text/plain"
XML: Final = "text/xml"


def media_type_of(content_type: str | None) -> str:
    """The media type without its parameters, in lower case. Empty without a Content-Type."""
    return (content_type or "").partition(";")[0].strip().lower()
