"""The facts about one entry of the cache, as an operator sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import Any

import msgspec

from doi_proxy.cache.entry import Entry
from doi_proxy.resolver import claims
from handle_protocol.answer import ResponseCode


def describe_entry(entry: Entry, now: float) -> dict[str, Any]:
    """The name, the state, the times and the values of an entry. `now` is in seconds since the epoch.

    What is not known is None, such as when a record of a file without times was fetched.
    """
    ends = claims.fresh_until(entry)
    registry = {} if entry.is_confirmed else {"agency": entry.agency}
    values = msgspec.json.decode(entry.answer.values) if entry.answer.code is ResponseCode.SUCCESS else []
    return {
        "doi": entry.key,
        "state": claims.find_currency(entry, now).value,
        "response_code": int(entry.answer.code),
        "fetched": _show_known(claims.dated_at(entry)),
        "fresh_until": _show_known(ends),
        "stale_until": show_time(entry.stale_until),
        "age": claims.age(entry, now),
        "ttl": None if ends is None else floor(ends - now),
        "verified": entry.is_proof(now),
        "values": values,
        **registry,
    }


def _show_known(seconds: float | None) -> str | None:
    return None if seconds is None else show_time(seconds)


def show_time(seconds: float) -> str:
    """A time in seconds since the epoch as ISO 8601 in UTC (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
