"""How long the names of a batch wait for an upstream that accepts no queries."""

from __future__ import annotations

from app.errors import CouldNotVerify, NotCached, NotInBundle, PrefixDenied
from app.resolver.resolution import UNCONFIRMED, Origin

#: Answers that do not show that the upstream works.
_WITHOUT_QUERY = frozenset({Origin.HIT, Origin.LOCAL}) | UNCONFIRMED
#: Failures without an attempt to query the upstream.
_UNRELATED = (NotCached, NotInBundle, PrefixDenied)


class Outage:
    """The time since which the upstream has accepted no query of a batch. All names of the batch share the patience.

    With a patience for each name, a list of 100,000 names would take days while the upstream is down.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None

    def record_answer(self, origin: Origin) -> None:
        """A name has been answered."""
        if origin not in _WITHOUT_QUERY:
            self._since = None

    def record_failure(self, error: CouldNotVerify, began: float, now: float) -> float:
        """A lookup that began at `began` has failed. Returns the seconds that its name may still wait, at least 0."""
        if isinstance(error, _UNRELATED):
            return 0.0
        if error.concerns_name:
            # The upstream has answered: it works for other names.
            self._since = None
            return 0.0
        if self._since is None:
            self._since = began
        return max(0.0, self._patience - (now - self._since))
