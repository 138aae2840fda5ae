"""Dates as a reader of a language writes them."""

from __future__ import annotations

from datetime import date

from app.web.languages import Catalogue


def write_date(texts: Catalogue, iso: str) -> str:
    """A date of ISO 8601 in words, such as "1 March 2026"."""
    day = date.fromisoformat(iso)
    month = texts("date.months").split(",")[day.month - 1].strip()
    return str(texts("date.first" if day.day == 1 else "date.day", day=day.day, month=month, year=day.year))
