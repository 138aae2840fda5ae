"""A record of ordinary size for any name, derived from the name, so client and stand-in agree without a list."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

from doi_names.name import fold
from doi_proxy.cache.entry import Entry
from handle_protocol.referral import Answer, ResponseCode

#: Two days: no record expires during a run.
LONG_TTL: Final = 172_800
#: Ten years, in seconds, for stores that several runs use.
TEN_YEARS: Final = 10 * 365 * 86_400.0
_STAMP: Final = "2024-03-01T12:00:00Z"


def target_of(name: str) -> str:
    """The target of the name."""
    return f"https://publisher.example/articles/{crc32(fold(name).encode()):08x}"


def values_of(name: str, ttl: int = LONG_TTL) -> bytes:
    """The JSON array of the record's values: about 500 bytes."""
    admin = {"handle": "0.NA/10.1000", "index": 200, "permissions": "111111110010"}
    values = [
        _value(1, "URL", {"format": "string", "value": target_of(name)}, ttl),
        _value(700050, "700050", {"format": "string", "value": "20240301" * 2}, ttl),
        _value(100, "HS_ADMIN", {"format": "admin", "value": admin}, ttl),
    ]
    return msgspec.json.encode(values)


def values_sized(name: str, size: int) -> bytes:
    """The JSON array of a record's values, of exactly `size` bytes (300 or more)."""
    values = [_value(1, "URL", {"format": "string", "value": target_of(name)}, LONG_TTL)]
    filler: dict[str, object] = {"format": "string", "value": ""}
    values.append(_value(2, "DESC", filler, LONG_TTL))
    filler["value"] = "x" * (size - len(msgspec.json.encode(values)))
    return msgspec.json.encode(values)


def _value(index: int, kind: str, data: dict[str, object], ttl: int) -> dict[str, object]:
    return {"index": index, "type": kind, "data": data, "ttl": ttl, "timestamp": _STAMP}


def answer_of(name: str, ttl: int = LONG_TTL) -> bytes:
    """The answer of the handle API about the name: about 600 bytes."""
    return b'{"responseCode":1,"handle":' + msgspec.json.encode(name) + b',"values":' + values_of(name, ttl) + b"}"


def entry_of(name: str, now: float, seconds: float = LONG_TTL, values: bytes | None = None) -> Entry:
    """The cache entry of the name, fetched at `now` (seconds since the epoch) and fresh for `seconds`."""
    answer = Answer(ResponseCode.SUCCESS, values_of(name) if values is None else values)
    return Entry(fold(name), answer, now, now + seconds, now + 2 * seconds)
