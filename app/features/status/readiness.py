"""The state of the parts of one process, in a fixed vocabulary without paths, hosts or messages of libraries."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Final, Literal

from app.assembly.lifecycle import Lifecycle
from app.assembly.resolving import Parts
from app.features.library.file import LibraryFile
from app.features.local_records.files import LocalFiles
from app.features.status.health import LocalReadiness, ProblemPlace, Readiness, UpstreamReadiness
from app.upstream.breaker import BreakerState
from app.upstream.guard import Guard

#: Problems of local records that are shown.
_MAX_PLACES: Final = 10
#: The breaker's state as a word for readiness.
_BREAKER_WORDS: Final[dict[BreakerState, Literal["closed", "half-open", "open"]]] = {
    BreakerState.CLOSED: "closed",
    BreakerState.HALF_OPEN: "half-open",
    BreakerState.OPEN: "open",
}


async def describe_readiness(parts: Parts, lifecycle: Lifecycle, library_file: LibraryFile) -> Readiness:
    """The body of `/readyz`. It queries the store, and never an upstream."""
    stats = await parts.cache.stats()
    # A failing store makes the cache slower. It is not a reason to send requests to another node.
    store = "memory-only" if stats.store is None else "ok" if stats.healthy else "failing"
    upstreams = [_upstream_readiness(number, guard) for number, guard in enumerate(parts.upstream.guards.values(), 1)]
    detail = {"mode": parts.settings.mode, "upstream": _worst_state(upstreams), "store": store}
    if library_file.is_used:
        detail["library_rules"] = "broken" if library_file.problems else "ok"
    if lifecycle.draining:
        detail["service"] = "draining"
    local = None if parts.local_files is None else _local_readiness(parts.local_files)
    return Readiness(ready=not lifecycle.draining, detail=detail, upstreams=upstreams, local_records=local)


def _local_readiness(files: LocalFiles) -> LocalReadiness:
    return LocalReadiness(
        state="broken" if files.is_broken else "ok",
        records=files.records,
        # The message of a problem may contain a host or a path, and is in the log.
        problems=[
            ProblemPlace(file=Path(problem.file).name, line=problem.line, column=problem.column)
            for problem in files.problems[:_MAX_PLACES]
        ],
    )


def _upstream_readiness(number: int, guard: Guard) -> UpstreamReadiness:
    return UpstreamReadiness(
        number=number,
        state=guard.state,
        breaker=_BREAKER_WORDS[guard.breaker.state],
        retry_after=ceil(guard.pause_seconds) or None,
    )


def _worst_state(upstreams: Sequence[UpstreamReadiness]) -> str:
    states = {upstream.state for upstream in upstreams}
    return next((state for state in ("failing", "backing-off", "ok", "unknown") if state in states), "sealed")
