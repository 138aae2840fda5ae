"""Media types (RFC 9110, section 8.3)."""

from __future__ import annotations

from typing import Final

BIBTEX: Final = "text/x-bibtex"
CSV: Final = "text/csv"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
HTML: Final = "text/html"
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PROBLEM: Final = "application/problem+json"
RIS: Final = "application/x-research-info-systems"
TEXT: Final = "text/plain"
