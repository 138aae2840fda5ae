"""The purges of the last hour. The answer to a query that was sent before a purge is not stored."""

from __future__ import annotations

from math import inf
from typing import Final

#: Seconds for which a purge is remembered. No query takes this long.
PURGE_MEMORY: Final = 3_600.0
#: Purges that are remembered one by one. Beyond that, one of UNKNOWN takes their place.
MAX_PURGES: Final = 5_000
#: The same for a process that waits for its store, which it then purges: of UNKNOWN, it must purge everything.
MAX_LATE_PURGES: Final = 50_000
#: The scope of a purge of everything.
EVERYTHING: Final = ""
#: The scope of purges that are no longer known one by one. It deletes nothing. It refuses more answers to earlier
#: queries than necessary, and each of those costs one more query. A name has no control characters.
UNKNOWN: Final = "\tpurges"
#: The scope of a purge of every "not found". It too refuses more answers than necessary.
NOT_FOUND: Final = "\tnot-found"


def has_many_keys(scope: str) -> bool:
    """Whether a scope is more than one key."""
    return scope in (EVERYTHING, UNKNOWN, NOT_FOUND) or scope.endswith("/")


def scopes_of(key: str) -> tuple[str, str, str]:
    """The scopes whose purge concerns a key: the key itself, its prefix with a slash at the end, and everything."""
    return key, key.partition("/")[0] + "/", EVERYTHING


class Purges(dict[str, float]):
    """The time of the last purge of each scope, in seconds since the epoch. Empty is the usual case."""

    most = MAX_PURGES

    def record(self, scope: str, at: float) -> None:
        """Record a purge."""
        if len(self) >= self.most and scope not in self:
            self.clear()
            scope = UNKNOWN
        self[scope] = at

    def refuses(self, key: str, sent_at: float, now: float) -> bool:
        """Whether a query about `key` that was sent at `sent_at` is older than a purge.

        A purge in the future was recorded before the clock was set back. It does not count.
        """
        return any(sent_at < self.get(scope, -inf) <= now for scope in (*scopes_of(key), UNKNOWN, NOT_FOUND))
