"""Header fields: their type, their form as lines, and the form of a date."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache

#: A header field as ASGI has it: its name in lower case, and its value.
Header = tuple[bytes, bytes]


def header_lines(headers: Iterable[Header]) -> bytes:
    """Header fields as lines (RFC 9112, section 5)."""
    return b"\r\n".join([*map(b": ".join, headers), b""])


@lru_cache(maxsize=4096)
def http_date(seconds: int) -> bytes:
    """A date (RFC 9110, section 5.6.7) from whole seconds since the epoch."""
    days, second = divmod(seconds, 86_400)
    return b"%b%02d:%02d:%02d GMT" % (_day(days), second // 3_600, second // 60 % 60, second % 60)


@lru_cache(maxsize=256)
def _day(days: int) -> bytes:
    """The part of a date before the time. Records expire at many different seconds, but on few days."""
    return formatdate(days * 86_400, usegmt=True).encode()[:-12]
