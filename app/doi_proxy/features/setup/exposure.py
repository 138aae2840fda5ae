"""Finds what a front proxy shows strangers, and a store that cannot be written. These probes need no key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from doi_proxy.features.setup.probes import ProbeAnswer, Prober
from doi_proxy.features.setup.remedies import remedy_for
from doi_proxy.system.check import Finding

_ADMIN_PATH: Final = "/admin/settings"
_STATUS_PATH: Final = "/status?format=json"
#: The states of a store (`/readyz`) that an operator should know of.
_STORE_PROBLEMS: Final = {
    "read-only": "the store can be read, but not written: new records are lost when a process ends",
    "failing": "the store fails: each process has its memory alone",
}
#: The challenge of the admin API (RFC 6750, section 3).
_CHALLENGE: Final = "doi-proxy admin"


def find_exposure(prober: Prober, kind: str) -> Iterator[Finding]:
    """Paths of operators that this client reaches. `kind` is that of the front proxy. Raises ProxyFailure.

    A client on this machine is not a stranger: the generated configurations let it pass.
    """
    yield from judge_readiness(prober.send_plain("/readyz"))
    admin = prober.send_plain(_ADMIN_PATH)
    if prober.is_on_this_machine:
        yield Finding(
            "note",
            "probe /admin/",
            "this machine reached the front proxy by a loopback address, so it cannot see what strangers reach",
            "run this command on another machine too",
        )
        return
    yield from judge_admin(admin, kind)
    yield from judge_status(prober.send_plain(_STATUS_PATH), kind)


def judge_admin(answer: ProbeAnswer, kind: str) -> Iterator[Finding]:
    """A finding if an answer without a token comes from the admin API."""
    if answer.status == HTTPStatus.UNAUTHORIZED and _CHALLENGE in answer.headers.get("www-authenticate", ""):
        problem = "strangers reach the admin API through the front proxy, and only the token protects it"
        yield Finding("warning", "probe /admin/", problem, remedy_for("admin", kind))


def judge_status(answer: ProbeAnswer, kind: str) -> Iterator[Finding]:
    """A finding if an answer is the status of the service."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return
    if answer.status == HTTPStatus.OK and isinstance(document, dict) and "hit_share" in document:
        problem = "strangers see /status through the front proxy"
        remedy = remedy_for("status", kind)
        yield Finding(
            "warning", "probe /status", problem, f"{remedy}; nothing, if status_networks has everyone on purpose"
        )


def judge_readiness(answer: ProbeAnswer) -> Iterator[Finding]:
    """A finding if `/readyz` says that the store cannot be written. A front proxy may keep strangers from that path."""
    try:
        state = json.loads(answer.body)["detail"]["store"]
    except (ValueError, LookupError, TypeError):
        return
    if answer.status == HTTPStatus.OK and state in _STORE_PROBLEMS:
        remedy = "the log of doi-proxy says why; see docs/operations.md"
        yield Finding("warning", "probe /readyz", _STORE_PROBLEMS[state], remedy)


def judge_health(answer: ProbeAnswer) -> Finding | None:
    """A finding if `/healthz` is not answered by a doi-proxy."""
    if answer.status == HTTPStatus.OK and b'"status"' in answer.body:
        return None
    return Finding(
        "error",
        "probe /healthz",
        f"no doi-proxy answered: HTTP {answer.status}",
        "let the front proxy pass every path to doi-proxy",
    )
