"""A sample of the page. It finds the errors of a custom template before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.features.status.models import StatusSummary
from app.features.status.page import page_facts
from app.features.status.runbook import runbook_facts

#: The view of the page, as the template reads it.
_VIEW: Final = {
    "plots": (
        {"key": "requests", "path": "M0 60", "newest": 3.0, "highest": 3.0, "unit": ""},
        {"key": "hit_share", "path": "", "newest": 0.0, "highest": 0.0, "unit": "%"},
    ),
}
_STATUS: Final[Mapping[str, Any]] = {
    "started": 0,
    "uptime": 0,
    "version": "1.0.0",
    "mode": "online",
    "draining": False,
    "workers": 1,
    "requests": {"302": 3},
    "answers": {"fresh": 2, "asked": 1},
    "hit_share": 0.67,
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
    "connections": 1,
    "refused": {},
    "loop_delay": 0.001,
    "history": [],
}


def sample_facts() -> dict[str, Mapping[str, Any]]:
    """The facts of the page by its template."""
    summary = StatusSummary(
        state="working",
        upstreams=[],
        down_since=None,
        requests_per_second=1.5,
        hit_share=0.9,
        failed_share=0.0,
        problems=["DoiProxyStoreFails"],
    )
    view: dict[str, Any] = {**_VIEW, "status": {**_STATUS, "summary": summary}}
    return {"status": page_facts(view), "runbook": runbook_facts()}
