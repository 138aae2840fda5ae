"""Why a service may fail: what its upstream did a moment ago, and how many queries its budget surely had left.

A failure names its cause, in an answer and in a line of the log. The cause must be one that the upstream gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

SPENT_BUDGET: Final = "a spent budget is named only if it is spent"
SLOW_UPSTREAM: Final = "a slow upstream is named only if it was slow"
RATE: Final = 10.0
BURST: Final = 50.0
PLACES: Final = 16
#: Seconds after a cause in which a failure may name it: failures are remembered for 15 s, an open breaker lasts 15 s
#: and then sends one query that takes up to 8 s.
AFTERMATH: Final = 45.0
#: Seconds for which a name is answered stale after a query that failed.
RECHECK: Final = 30.0
#: Seconds after which a budget that was emptied or divided is whole again, and those who waited have their answer.
_REFILL: Final = BURST / RATE + 9.0
#: Faults that keep a query waiting.
SLOW: Final = frozenset({"hang", "drip", "delay"})
_CUT: Final = frozenset({"reset", "close", "truncate", "not_http", "drop"})
_REFUSED: Final = frozenset({"status", "redirect", "code_2", "unavailable_but_known"})
_UNREADABLE: Final = frozenset(
    {"garbage", "html", "empty", "wrong_name", "values_no_list", "bad_gzip", "truncate", "not_http", "status"}
)
_PAUSE: Final = "pause"
#: The faults that a failure may name, by its token.
_CAUSES: Final[Mapping[str, frozenset[str]]] = {
    "upstream-timeout": SLOW,
    "upstream-slow": SLOW,
    # A query holds its place between its attempts.
    "places-full": SLOW | _CUT | _REFUSED | _UNREADABLE,
    "upstream-unreachable": _CUT,
    "upstream-refused": _REFUSED,
    "upstream-bad-answer": _UNREADABLE,
    "breaker-open": SLOW | _CUT | _REFUSED | _UNREADABLE,
    "upstream-paused": frozenset({_PAUSE}),
}
#: An upstream that answers so requests a pause, even without Retry-After.
_PAUSING: Final = frozenset({429, 503})
#: Seconds within which each instance has found that a pause is over.
_PAUSE_END: Final = 20.0
#: A budget with this part of its tokens is not spent, whatever the queries of clients that left took.
_PLENTY: Final = 0.2
#: The same for lists, which leave half of it to people.
_PLENTY_FOR_LISTS: Final = 0.5 + _PLENTY


class Causes:
    """What the upstream did. `clock` is the virtual time."""

    def __init__(self, clock: Callable[[], float], instances: int, *, is_counted: bool) -> None:
        """If the queries of all instances are counted, each of them takes a token of every instance."""
        self._clock = clock
        self._is_counted = is_counted
        #: Of the tokens, each instance surely has its part.
        self._rate, self._burst = RATE if is_counted else RATE / instances, BURST / instances
        #: When each kind of fault was met last, or the pause that was requested ends.
        self._met: dict[str, float] = {}
        #: The tokens that are surely left to each instance, at a time.
        self._tokens, self._tokens_at = [self._burst] * instances, [0.0] * instances
        #: Until when nothing is sure about the tokens.
        self._unsure_until = 0.0
        #: Until when there were fewer than plenty: for people, and for lists.
        self._scarce_until = self._scarce_for_lists_until = 0.0

    def note_fault(self, kind: str, options: Mapping[str, Any]) -> None:
        """A query met a fault."""
        now = self._clock()
        self._met[kind] = now
        if kind == "unavailable_but_known" or options.get("status") in _PAUSING:
            pause = max(now + options.get("retry_after", 1.0), self._met.get(_PAUSE, 0.0))
            self._met[_PAUSE] = pause
            # Each instance empties its bucket when it finds that the pause is over.
            self.doubt(pause - now + _PAUSE_END)
        if kind == "drop":
            # Each query in flight may have been on its way to the upstream. It is sent again for another token.
            for instance in range(len(self._tokens)):
                self._spend(instance, PLACES)

    def note_query(self, instance: int) -> None:
        """A query of an instance arrived."""
        for each in range(len(self._tokens)) if self._is_counted else (instance,):
            self._spend(each, 1)

    def _spend(self, instance: int, tokens: int) -> None:
        now = self._clock()
        since = max(self._tokens_at[instance], self._unsure_until)
        left = min(self._burst, self._tokens[instance] + max(0.0, now - since) * self._rate) - tokens
        left = max(left, 1.0 - PLACES)
        self._tokens[instance], self._tokens_at[instance] = left, now
        if (missing := _PLENTY * self._burst - left) > 0:
            self._scarce_until = max(self._scarce_until, now + missing / self._rate)
        if (missing := _PLENTY_FOR_LISTS * self._burst - left) > 0:
            self._scarce_for_lists_until = max(self._scarce_for_lists_until, now + missing / self._rate)

    def doubt(self, seconds: float = _REFILL) -> None:
        """The budget may have been emptied, or divided among the instances, and be so for so many seconds."""
        self._tokens = [0.0] * len(self._tokens)
        self._unsure_until = max(self._unsure_until, self._clock() + seconds)

    def is_calm(self, since: float) -> bool:
        """Whether nobody was slow since this time, nothing was paused and the budget was whole."""
        return self._unsure_until < since and not self._happened(SLOW, since)

    def find_old_objection(self, token: str, since: float) -> tuple[str, str] | None:
        """The same of a stale answer, which names the cause for which its last query failed."""
        return self.find_objection(token, since - RECHECK) or self.find_groundless(token, since)

    def find_objection(self, token: str, since: float, *, is_list: bool = False) -> tuple[str, str] | None:
        """The invariant that is broken if a failure since this time names this token as its cause, and how."""
        is_scarce = since <= max(self._unsure_until, self._scarce_for_lists_until if is_list else self._scarce_until)
        if token == "budget-spent":
            if is_scarce:
                return None
            slow = "the upstream is slow" if self._happened(SLOW, since) else "the upstream works"
            return SPENT_BUDGET, f"{token}, while {min(self._tokens):.0f} tokens were left and {slow}"
        kinds = _CAUSES.get(token)
        # A query has its place while it takes its token.
        if kinds is None or (is_scarce and token == "places-full") or self._happened(kinds, since):
            return None
        invariant = SLOW_UPSTREAM if kinds is SLOW else "a failure names a cause that there was"
        return invariant, f"{token}, while the upstream did {self._list(since)}"

    def find_groundless(self, token: str, since: float) -> tuple[str, str] | None:
        """The objection to an unusual token if nothing at all was wrong."""
        is_usual = token in _CAUSES or token == "budget-spent"
        if is_usual or self._happened(frozenset(self._met), since) or since <= self._unsure_until:
            return None
        return "a failure names a cause that there was", f"{token}, while the upstream did nothing wrong"

    def _happened(self, kinds: frozenset[str], since: float) -> bool:
        return any(self._met.get(kind, -AFTERMATH) + AFTERMATH > since for kind in kinds)

    def _list(self, since: float) -> str:
        return ", ".join(kind for kind, at in self._met.items() if at + AFTERMATH > since) or "nothing wrong"
