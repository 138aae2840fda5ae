"""Entries for tests."""

from __future__ import annotations

import json
from io import BytesIO

from msgspec.structs import replace

from doi_proxy.cache.entry import Entry
from doi_proxy.features.bundles.bundle import BundleWriter
from handle_protocol.referral import Answer, ResponseCode

NOW = 1_700_000_000.0


def values(url: str = "http://www.doi.org/hb.html") -> bytes:
    """The compact JSON of a record with one URL value."""
    value = {"index": 1, "type": "URL", "data": {"format": "string", "value": url}, "ttl": 86400}
    return json.dumps([value], separators=(",", ":")).encode()


def entry(
    key: str = "10.1000/182",
    url: str = "http://www.doi.org/hb.html",
    *,
    fetched_at: float = NOW,
    ttl: float = 86_400.0,
    grace: float = 30 * 86_400.0,
) -> Entry:
    """A record that was fetched at `fetched_at`."""
    ends = fetched_at + ttl
    return Entry(key, Answer(ResponseCode.SUCCESS, values(url)), fetched_at, ends, ends + grace)


def verified(one: Entry) -> Entry:
    """The entry with an answer whose signature was verified."""
    return replace(one, answer=replace(one.answer, is_verified=True))


def missing(key: str = "10.1000/MISSING", *, fetched_at: float = NOW) -> Entry:
    """A negative entry: known for a minute not to be registered."""
    return Entry(key, Answer(ResponseCode.HANDLE_NOT_FOUND), fetched_at, fetched_at + 60, fetched_at + 60)


def known(number: int) -> Entry:
    """One of many entries, each with its own URL; every tenth is negative."""
    key = f"10.1000/{number:04}"
    return missing(key) if number % 10 == 0 else entry(key, f"https://example.org/{number}")


def bundle(*entries: Entry) -> bytes:
    """A bundle of these entries."""
    file = BytesIO()
    writer = BundleWriter(file)
    for one in entries:
        writer.add(one)
    writer.finish()
    return file.getvalue()
