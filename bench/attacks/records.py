"""Attacks by records: what a hot name waits while a hostile record is requested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.attacks.connections import ATTACKER, OTHER
from bench.attacks.world import Checkout, Probe, Row, get, proxy, upstream
from tests.hostile.records import ASKED_FOR, PREFIX
from tests.hostile.upstream import ORDINARY

_HOT: Final = "/10.1000/182"
_LONGEST_WAIT: Final = 0.1
_PATIENCE: Final = 30.0
#: The redirect twice: the second time, the record is in memory.
_PATHS: Final = ("/{0}", "/{0}?noredirect", "/{0}?action=showurls", "/{0}?locatt=id:1", "/api/handles/{0}")


def records(checkout: Checkout) -> Iterator[Row]:
    """Each record as a redirect, a page, a list of its locations, and over the REST API; an ordinary one first."""
    yield _row(checkout, f"{ORDINARY}/ordinary", "an ordinary record")
    for name in ASKED_FOR:
        yield _row(checkout, f"{PREFIX}/{name}", f"`{name}`")


def _row(checkout: Checkout, name: str, label: str) -> Row:
    with upstream() as url, proxy(checkout, url) as target:
        # What the upstream takes to build the record is not the proxy's.
        get(int(url.rpartition(":")[2]), f"/api/handles/{name}")
        get(target.port, _HOT)
        with Probe(target.port, _HOT, source=OTHER, pause=0.005, timeout=2 * _PATIENCE) as probe:
            replies = [get(target.port, path.format(name), source=ATTACKER, timeout=_PATIENCE) for path in _PATHS]
        statuses = "/".join(str(reply.status or "none") for reply in replies)
        largest = max(len(reply.body) for reply in replies)
    return Row(
        f"worst delay of a hot name during {label}",
        f"{probe.worst * 1000:,.0f} ms ({statuses}; {largest / 1e6:,.1f} MB at most)",
        probe.worst <= _LONGEST_WAIT and not any(reply.status in (0, 500) for reply in replies),
    )
