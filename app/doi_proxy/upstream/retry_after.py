"""How long an upstream that refuses wants to be left alone: the `Retry-After` field (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

#: A longer time is cut to one hour. A mistaken date must not stop all queries for a year.
MAX_SECONDS: Final = 3600.0


_DELAY_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)


_MAX_CHARACTERS: Final = 64


def read_retry_after(value: str, now: float) -> float | None:
    """Seconds to wait, 0 to MAX_SECONDS, from delay-seconds or an HTTP-date. None if it is neither.

    `now` is in seconds since the epoch.
    """
    text = value.strip()
    if _DELAY_SECONDS.fullmatch(text):
        # More digits than this are more than MAX_SECONDS anyway.
        return MAX_SECONDS if len(text) > 9 else min(float(text), MAX_SECONDS)
    try:
        when = parsedate_to_datetime(text[:_MAX_CHARACTERS])
        seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, min(seconds, MAX_SECONDS))
