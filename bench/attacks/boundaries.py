"""Attacks on boundaries: tokens of a neighbour, paths with dot segments, request IDs in a shared cache, odd files."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.attacks.world import Checkout, Row, get, nginx, proxy, upstream
from bench.servers import plain_environment

_TOKEN: Final = "a-token-of-the-operators"
_RIGHT: Final = f"Bearer {_TOKEN}"
_SETTINGS: Final = "/admin/settings"
_NAME: Final = "/10.1000/182"
#: Addresses of one /24, and one of another.
_NEIGHBOUR, _OPERATOR, _STRANGER = "127.1.2.99", "127.1.2.3", "127.9.9.9"
_WRONG_TOKENS: Final = 11
#: Paths that nginx takes for names, and passes on as they were sent.
_LEADING_OUT: Final = (
    "/admin/../10.1000/182",
    "/admin/%2e%2e/10.1000/182",
    "/admin/..%2f10.1000/182",
    "/admin/.%2e/10.1000/182",
    "/admin/x/../../10.1000/182",
    "/admin/./../10.1000/182",
    "/admin//../../10.1000/182",
)
_ODD_FILES: Final = ("client_deny_file", "country_database", "upstream_bootstrap", "tls_cert")
#: Seconds for a check of a regular file on a busy machine.
_CHECK: Final = 30.0


def tokens(checkout: Checkout) -> Iterator[Row]:
    """Wrong tokens of a neighbour, and right ones of the same network."""
    settings: dict[str, Any] = {"admin_token": _TOKEN}
    with upstream() as url, proxy(checkout, url, **settings) as running:
        before = get(running.port, _SETTINGS, source=_OPERATOR, Authorization=_RIGHT).status
        for _ in range(_WRONG_TOKENS):
            get(running.port, _SETTINGS, source=_NEIGHBOUR, Authorization="Bearer wrong")
        limited = get(running.port, _SETTINGS, source=_NEIGHBOUR, Authorization="Bearer wrong").status
        right = [get(running.port, _SETTINGS, source=_OPERATOR, Authorization=_RIGHT).status for _ in range(10)]
    yield Row("control: a right admin token", str(before), before == 200)
    yield Row(
        f"{_WRONG_TOKENS} wrong admin tokens of a neighbour: its next one, right ones of its /24 that are admitted",
        f"{limited}, {right.count(200)} of {len(right)}",
        limited == 429 and right.count(200) == len(right),
    )


def paths(checkout: Checkout) -> Iterator[Row]:
    """Paths that pass the closed /admin/ of nginx."""
    settings: dict[str, Any] = {"admin_token": _TOKEN}
    with upstream() as url, proxy(checkout, url, **settings) as running, nginx(checkout, running.port) as port:
        closed = get(port, _SETTINGS, source=_STRANGER).status
        reached = [get(port, path, source=_STRANGER).status == 401 for path in _LEADING_OUT]
    yield Row("control: /admin/ of the shipped nginx file for a stranger", str(closed), closed == 403)
    yield Row(
        "paths with dot segments that reach the gate of the admin API through nginx",
        f"{sum(reached)} of {len(reached)}",
        not any(reached),
    )


def spellings(checkout: Checkout) -> Iterator[Row]:
    """The same paths without a front, or through the front that is chosen."""
    settings: dict[str, Any] = {"admin_token": _TOKEN}
    with upstream() as url, proxy(checkout, url, **settings) as running:
        names = get(running.port, _NAME, source=_STRANGER).status
        reached = [get(running.port, path, source=_STRANGER).status == 401 for path in _LEADING_OUT]
    yield Row("control: a name for the same client", str(names), names == 302)
    yield Row("paths with dot segments that reach the gate of the admin API", str(sum(reached)), not any(reached))


def identifiers(checkout: Checkout) -> Iterator[Row]:
    """The request ID of one client in the answers of a shared cache."""
    with upstream() as url, proxy(checkout, url) as running, nginx(checkout, running.port, cached=True) as port:
        get(port, _NAME, source=_NEIGHBOUR, X_Request_Id="attacker-chosen-0001")
        other = get(port, _NAME, source=_STRANGER)
    yield Row("control: another client's answer comes from the cache", other.headers.get("x-cache", "none"), True)
    shown = other.headers.get("x-request-id", "none")
    yield Row("the request ID in it, after a client chose one", shown, "attacker" not in shown)


def files(checkout: Checkout) -> Iterator[Row]:
    """A FIFO in place of a file of the operator."""
    with tempfile.TemporaryDirectory(prefix="doi-proxy-attack-") as folder:
        pipe, absent = Path(folder, "pipe"), Path(folder, "absent")
        os.mkfifo(pipe)
        for path, words in ((absent, "control: a file that does not exist"), (pipe, "a FIFO")):
            ended = {name: _check(checkout, name, path) for name in _ODD_FILES}
            shown = ", ".join(f"{name} {status}" for name, status in ended.items())
            yield Row(f"`check` with {words}: exit status", shown, set(ended.values()) == {"2"})


def _check(checkout: Checkout, setting: str, path: Path) -> str:
    environment = {**plain_environment(), "DOI_PROXY_STORE_URL": "memory:", f"DOI_PROXY_{setting.upper()}": str(path)}
    if setting == "tls_cert":
        environment["DOI_PROXY_TLS_KEY"] = str(path)
    command = [checkout.python, "-m", "doi_proxy", "check", "--offline"]
    try:
        ended = subprocess.run(
            command, cwd=checkout.folder, env=environment, capture_output=True, check=False, timeout=_CHECK
        )
    except subprocess.TimeoutExpired:
        return "none"
    return str(ended.returncode)
