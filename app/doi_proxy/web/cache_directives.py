"""The directives of a request's Cache-Control (RFC 9111, section 5.2.1; RFC 5861, section 4)."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Final

import msgspec

#: Longer headers are ignored.
_MAX_HEADER: Final = 1_024
#: Larger numbers count as this one (RFC 9111, section 1.2.2).
_MAX_SECONDS: Final = 2_147_483_648.0


class CacheDirectives(msgspec.Struct, frozen=True, gc=False):
    """Which cached records a request accepts. Times are in seconds; None where the request does not say."""

    #: The largest age of a record. `no-cache` is 0.
    max_age: float | None = None
    #: The longest time past its TTL of a record that is used without an upstream query.
    max_stale: float | None = None
    #: The longest time past its TTL of a record that is used because the upstream failed.
    stale_if_error: float | None = None
    only_if_cached: bool = False


NO_DIRECTIVES: Final = CacheDirectives()


def read_directives(cache_control: str | None) -> CacheDirectives:
    """The directives of a header. Unknown ones, and those with a bad value, are ignored."""
    if not cache_control or len(cache_control) > _MAX_HEADER:
        return NO_DIRECTIVES
    return _read(cache_control)


@lru_cache(maxsize=256)
def _read(cache_control: str) -> CacheDirectives:
    found = dict(_split(part) for part in cache_control.split(","))
    max_stale = inf if found.get("max-stale") == "" else _seconds(found.get("max-stale"))
    return CacheDirectives(
        max_age=0.0 if "no-cache" in found else _seconds(found.get("max-age")),
        max_stale=max_stale,
        stale_if_error=_seconds(found.get("stale-if-error")),
        only_if_cached="only-if-cached" in found,
    )


def _split(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _seconds(text: str | None) -> float | None:
    """A number of seconds (RFC 9111, section 1.2.2), None for anything else."""
    return min(float(text), _MAX_SECONDS) if text is not None and text.isascii() and text.isdigit() else None
