"""How long a handle value may be kept (RFC 3651, section 3.1: "TTL" is relative seconds or an absolute time)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.errors import InvalidAnswer


class Ttl(msgspec.Struct, frozen=True, gc=False):
    """Seconds after the answer arrived, or (absolute) seconds since the epoch."""

    seconds: float
    absolute: bool = False

    def ends_at(self, fetched_at: float) -> float:
        """When the value ends, in seconds since the epoch, if it was fetched at `fetched_at`."""
        return self.seconds if self.absolute else fetched_at + self.seconds


#: What the handle system takes where a value says nothing: 24 hours.
DEFAULT_TTL: Final = Ttl(86400)
#: Greater numbers overflow date arithmetic and mean "for ever" anyway: 100 years.
_MOST_SECONDS: Final = 100 * 365 * 86400.0


def read_ttl(given: int | float | str) -> Ttl:
    """Read the `ttl` member: a number of seconds, or a time of ISO 8601. Raises InvalidAnswer for anything else."""
    if isinstance(given, (int, float)):
        if given != given:  # not a number
            raise InvalidAnswer("The upstream's answer holds a value whose ttl is not a number.")
        # Bounded before it becomes a float: JSON numbers have any number of digits.
        return Ttl(float(max(-_MOST_SECONDS, min(given, _MOST_SECONDS))))
    try:
        when = datetime.fromisoformat(given)
        # A time without a zone is UTC, as all times of the handle system are.
        return Ttl((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), absolute=True)
    except (ValueError, OverflowError) as error:
        raise InvalidAnswer(
            f"The upstream's answer holds a value whose ttl {given[:40]!r} is neither seconds nor an ISO 8601 time."
        ) from error


def earliest_end(ttls: Iterable[Ttl], fetched_at: float) -> float:
    """When the first of several values ends, in seconds since the epoch; without values, the default TTL's end."""
    return min((ttl.ends_at(fetched_at) for ttl in ttls), default=DEFAULT_TTL.ends_at(fetched_at))
