"""The TTL of a handle value: relative seconds or an absolute time (RFC 3651, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.errors import InvalidAnswer


class Ttl(msgspec.Struct, frozen=True, gc=False):
    """Seconds after the answer arrived, or seconds since the epoch if `absolute`."""

    seconds: float
    absolute: bool = False

    def ends_at(self, fetched_at: float) -> float:
        """When the TTL ends, in seconds since the epoch, for a value fetched at `fetched_at`."""
        return self.seconds if self.absolute else fetched_at + self.seconds


#: The handle system's TTL of a value without one: 24 hours.
DEFAULT_TTL: Final = Ttl(86400)
#: 100 years. Greater numbers overflow date arithmetic, and in practice mean "for ever" too.
_MAX_SECONDS: Final = 100 * 365 * 86400.0


def read_ttl(member: int | float | str) -> Ttl:
    """Read the `ttl` member: a number of seconds, or an ISO 8601 time. Raises InvalidAnswer for anything else."""
    if isinstance(member, (int, float)):
        if member != member:  # NaN
            raise InvalidAnswer("The upstream's answer holds a value whose ttl is not a number.")
        # The limit comes first: a JSON number can have too many digits for a float.
        return Ttl(float(max(-_MAX_SECONDS, min(member, _MAX_SECONDS))))
    try:
        when = datetime.fromisoformat(member)
        # A time without a zone is UTC, like all times of the handle system.
        return Ttl((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), absolute=True)
    except (ValueError, OverflowError) as error:
        raise InvalidAnswer(
            f"The upstream's answer holds a value whose ttl {member[:40]!r} is neither seconds nor an ISO 8601 time."
        ) from error


def earliest_end(ttls: Iterable[Ttl], fetched_at: float) -> float:
    """When the first of several TTLs ends, in seconds since the epoch. Without TTLs, DEFAULT_TTL counts."""
    return min((ttl.ends_at(fetched_at) for ttl in ttls), default=DEFAULT_TTL.ends_at(fetched_at))
