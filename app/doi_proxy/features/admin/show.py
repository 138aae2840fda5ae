"""The facts about one entry of the cache, as an operator sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import Any

import msgspec

from doi_proxy.cache.entry import Entry
from handle_protocol.answer import ResponseCode


def describe_entry(entry: Entry, now: float) -> dict[str, Any]:
    """The name, the state, the times and the values of an entry. `now` is in seconds since the epoch."""
    registry = {} if entry.is_confirmed else {"agency": entry.agency}
    values = msgspec.json.decode(entry.answer.values) if entry.answer.code is ResponseCode.SUCCESS else []
    return {
        "doi": entry.key,
        "state": _state(entry, now),
        "response_code": int(entry.answer.code),
        "fetched": show_time(entry.fetched_at),
        "fresh_until": show_time(entry.fresh_until),
        "stale_until": show_time(entry.stale_until),
        "age": int(entry.age(now)),
        "ttl": floor(entry.ttl_left(now)),
        "verified": entry.is_proof(now),
        "values": values,
        **registry,
    }


def _state(entry: Entry, now: float) -> str:
    if not entry.is_confirmed:
        return "registry"
    return "fresh" if entry.is_fresh(now) else "stale" if entry.is_usable(now) else "expired"


def show_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601 in UTC (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
