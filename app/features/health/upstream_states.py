"""What the workers of a service know of its upstreams. A client must not get another answer from each worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, cast

from app.features.feature import Core, Service
from app.features.shared_states import PartState, SharedStates
from app.upstream.guard import Guard, UpstreamState

#: A pause is in the store, and each worker reads it there before its next query.
_PAUSED: Final[UpstreamState] = "backing-off"


class UpstreamStates(Service):
    """The state of each upstream, from the last query that any worker sent to it."""

    def __init__(self, core: Core, states: SharedStates, clock: Callable[[], float]) -> None:
        """`clock` is in seconds since the epoch."""
        self._core = core
        self._states = states
        self._clock = clock

    def tick(self) -> None:
        """Let the other workers know."""
        self.read()

    def read(self) -> dict[str, tuple[UpstreamState, float | None]]:
        """The state of each upstream by its URL, and since when it fails, in seconds since the epoch."""
        guards = self._core.upstream.guards
        own = {url: self._describe(guard) for url, guard in guards.items()}
        known = self._states.share({url: state for url, state in own.items() if state.at})
        found = {url: own[url] if own[url].word == _PAUSED else known.get(url, own[url]) for url in guards}
        return {url: (cast(UpstreamState, state.word), state.since) for url, state in found.items()}

    def _describe(self, guard: Guard) -> PartState:
        failed = guard.log.first_failure
        since = None if failed is None else self._clock() - (time.monotonic() - failed)
        return PartState(guard.state, guard.result_at, since if guard.state == "failing" else None)
