"""A sample of the page. It finds the errors of a custom template before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from doi_proxy.features.status import models
from doi_proxy.features.status.page import page_facts

#: The time of the sample, in seconds since the epoch.
_START: Final = 1_700_000_100
_STATUS: Final[Mapping[str, Any]] = {
    "started": _START,
    "uptime": 600,
    "version": "1.0.0",
    "mode": "online",
    "draining": False,
    "requests": {"302": 3},
    "answers": {"fresh": 2, "asked": 1},
    "hit_share": 0.67,
    "independent_share": 0.93,
    "unverified": {},
    "denied": 0,
    "upstreams": [],
    "upstream_seconds": 0.2,
    "budget": {"tokens": 10.0, "rate": 5.0, "in_flight": 0, "waiting": 0, "clients_waiting": 0},
    "store": {
        "kind": "memory",
        "healthy": True,
        "entries": 0,
        "bytes": 0,
        "memory_entries": 1,
        "memory_bytes": 1000,
    },
    "local_records": None,
    "clients": {"networks": 3, "half": 1, "nine_tenths": 2, "largest_share": 0.67},
    "prefixes": {"asked": [models.PrefixCount(prefix="10.1000", names=7)], "missing": [], "unverified": []},
    "connections": 1,
    "refused": {},
    "loop_delay": 0.001,
}


def sample_status() -> dict[str, Mapping[str, Any]]:
    """The facts of the page by its template."""
    summary = models.StatusSummary(
        state="working",
        upstreams=[],
        down_since=None,
        requests_per_second=1.5,
        hit_share=0.9,
        failed_share=0.0,
        problems=["DoiProxyStoreFails"],
    )
    point = models.HistoryPoint(
        start=_START, requests=9, answers=8, hits=5, stale=1, unverified=1, questions=3, down=60
    )
    events = [
        models.EventStatus(kind="start", at=_START, until=None, detail="1.0.0", count=1),
        models.EventStatus(kind="outage", at=_START, until=_START + 90, detail="doi.org", count=1),
    ]
    status = models.Status.model_validate({**_STATUS, "summary": summary, "events": events, "history": [point]})
    return {"status": page_facts(status)}
