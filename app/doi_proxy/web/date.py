"""Dates and times as a reader of a language writes them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from doi_proxy.web.languages import Catalogue
from doi_proxy.web.shown_values import visible

_TIME: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}):[0-9]{2}(?:\.[0-9]+)?Z")
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,10}")


def write_date(texts: Catalogue, iso: str) -> str:
    """A date of ISO 8601 in words, such as "1 March 2026"."""
    day = date.fromisoformat(iso)
    month = texts.texts["date.months"].split(",")[day.month - 1].strip()
    return str(texts("date.first" if day.day == 1 else "date.day", day=day.day, month=month, year=day.year))


def write_moment(texts: Catalogue, at: float | None) -> str:
    """A time in seconds since the epoch, such as "1 March 2026, 17:05 UTC"; "" if it is not known, or 0."""
    if at is None or at <= 0:
        return ""
    iso = datetime.fromtimestamp(at, UTC).isoformat()
    return str(texts("date.moment", day=write_date(texts, iso[:10]), time=iso[11:16]))


def write_timestamp(texts: Catalogue, timestamp: str | None) -> str | None:
    """The timestamp of a value, in ISO 8601 or seconds since the epoch. Other text stays."""
    if timestamp is None or timestamp == "0":
        return None
    if _SECONDS.fullmatch(timestamp):
        return write_moment(texts, int(timestamp))
    at = _TIME.fullmatch(timestamp)
    try:
        return visible(timestamp) if at is None else str(texts("date.moment", day=write_date(texts, at[1]), time=at[2]))
    except ValueError:
        return visible(timestamp)
