"""What the workers of a service know of its upstreams. A client must not get another answer from each worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, cast

from doi_proxy.sharing.states import PartState, SharedStates
from doi_proxy.system.background import Service
from doi_proxy.upstream.guard import Guard, UpstreamState

#: A pause is in the store, and each worker reads it there before its next query.
_PAUSED: Final[UpstreamState] = "backing-off"


class UpstreamStates(Service):
    """The state of each upstream, from the last query that any worker sent to it."""

    def __init__(self, guards: Mapping[str, Guard], states: SharedStates, clock: Callable[[], float]) -> None:
        """`guards` are the upstreams of this worker by their URLs. `clock` is in seconds since the epoch."""
        self._guards = guards
        self._states = states
        self._clock = clock

    def tick(self) -> None:
        """Let the other workers know. A later answer to another worker ends the outage of this one."""
        own = self._read_own()
        known = self._states.share({url: state for url, state in own.items() if state.at})
        for url, guard in self._guards.items():
            state = known.get(url, own[url])
            if own[url].word == "failing" and state.word == "ok" and state.at > own[url].at:
                guard.record_answer(state.at)

    def read(self) -> dict[str, tuple[UpstreamState, float | None]]:
        """The state of each upstream by its URL, and since when it fails, in seconds since the epoch."""
        own = self._read_own()
        known = self._states.share({url: state for url, state in own.items() if state.at})
        found = {url: state if state.word == _PAUSED else known.get(url, state) for url, state in own.items()}
        return {url: (cast(UpstreamState, state.word), state.since) for url, state in found.items()}

    def _read_own(self) -> dict[str, PartState]:
        return {url: self._describe(guard) for url, guard in self._guards.items()}

    def _describe(self, guard: Guard) -> PartState:
        failed = guard.log.first_failure
        since = None if failed is None else self._clock() - (time.monotonic() - failed)
        return PartState(guard.state, guard.result_at, since if guard.state == "failing" else None)
