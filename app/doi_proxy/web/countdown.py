"""The freshness of an answer from one fresh record, as header lines: each second, only numbers in them change.

doi_proxy.web.freshness decides the headers, and writes them for an answer that is sent once. A test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Protocol

from doi_proxy.resolver.resolution import Resolution
from doi_proxy.web.freshness import CACHE_NAME, MAX_AGE, VERIFIED
from doi_proxy.web.header import http_date

#: What the places in a pattern are filled with.
Numbers = tuple[int | bytes, ...]


class Countdown(Protocol):
    """The lines about any record, of one kind of answer."""

    def pattern(self, hit: Resolution) -> bytes:
        """The lines about a record, with a place for each number."""

    def numbers(self, hit: Resolution, now: int) -> Numbers:
        """The numbers at a time, in whole seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PageCountdown:
    """The lines of a page. `max_age` is in seconds."""

    max_age: int = MAX_AGE

    def pattern(self, hit: Resolution) -> bytes:
        """See Countdown."""
        return b"cache-control: public, max-age=%d\r\n" + _status_pattern(hit)

    def numbers(self, hit: Resolution, now: int) -> Numbers:
        """See Countdown."""
        left = floor(hit.entry.fresh_until - now)
        return (left if left < self.max_age else self.max_age), left


@dataclass(frozen=True, slots=True)
class RedirectCountdown(PageCountdown):
    """The lines of a redirect. Its Expires is the end of the record."""

    def pattern(self, hit: Resolution) -> bytes:
        """See Countdown."""
        return b"expires: " + http_date(int(hit.entry.fresh_until)) + b"\r\n" + PageCountdown.pattern(self, hit)


@dataclass(frozen=True, slots=True)
class JsonCountdown:
    """The lines of a record as JSON. `max_age` is in seconds."""

    max_age: int = MAX_AGE

    def pattern(self, hit: Resolution) -> bytes:
        """See Countdown."""
        return b"cache-control: public, max-age=%d\r\nexpires: %b\r\nage: %d\r\n" + _status_pattern(hit)

    def numbers(self, hit: Resolution, now: int) -> Numbers:
        """See Countdown."""
        left, age = floor(hit.entry.fresh_until - now), int(hit.entry.age(now))
        ends = http_date(int(min(hit.entry.fresh_until, now + self.max_age)))
        return age + min(left, self.max_age), ends, age, left


def _status_pattern(hit: Resolution) -> bytes:
    detail = f"; detail={VERIFIED}" if hit.entry.answer.is_verified else ""
    return f"cache-status: {CACHE_NAME}; hit; ttl=%d{detail}\r\n".encode()
