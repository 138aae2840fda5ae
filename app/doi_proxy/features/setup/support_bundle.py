"""`doi-proxy check --bundle FILE`: writes one .tar.gz with versions, settings, the results of checks, store and status.

No file of it has a DOI name, an address of a client or a secret: logs and records stay out of it.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import distributions
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.feature import CommandContext
from doi_proxy.proxy_client import Exchange, ProxyFailure, ProxyServer, find_server, send_request
from doi_proxy.system.files import create_new
from doi_proxy.system.options import MASK, Settings, redact
from doi_proxy.system.version import read_version


def check_ready(settings: Settings, server: str | None) -> int:
    """Print the answer of `/readyz`. Exit status 0 if the proxy at a URL, or on this machine, is ready, else 1.

    Raises ProxyFailure without an answer, and for a 200 of another program: many answer every path with a page.
    """
    # Timeout in seconds. Container engines end a health check soon after.
    with Exchange(find_server(settings, server), 5.0) as exchange:
        status = exchange.send("GET", "/readyz", {})
        body = exchange.read(64 * 1024)
        print(body.decode("utf-8", "replace"))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        is_ours = isinstance(answer, dict) and answer.get("ready") is True and isinstance(answer.get("detail"), dict)
        if status == http.client.OK and not is_ours:
            raise ProxyFailure(
                f"{exchange.server.label}: its answer does not say that it is ready; this is not a doi-proxy; check "
                "the URL and the port",
                is_transient=False,
            )
    return 0 if status == http.client.OK else 1


#: Timeout of each wait for bytes and of one fetch, in seconds.
_TIMEOUT: Final = 10.0
_DEADLINE: Final = 30.0
_NOTE: Final = (
    "A support bundle of doi-proxy. Secrets are masked. It has no DOI name and no address of a client: logs, records "
    "and lists of networks are not in it. A file that ends in .missing says why a part is missing.\n"
)


def write_support_bundle(context: CommandContext, path: Path, server: str | None) -> int:
    """Write the archive about the proxy at a URL, by default the one on this machine. Raises DoiProxyError."""
    parts = _collect(context, find_server(context.settings, server))
    try:
        # A bundle is for the eyes of its operator first.
        with create_new(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in parts.items():
                entry = tarfile.TarInfo(f"doi-proxy-support/{name}")
                entry.size, entry.mode = len(content), 0o600
                archive.addfile(entry, io.BytesIO(content))
    except FileExistsError:
        raise DoiProxyError(f"--bundle {path}: this exists, and no file is replaced; name another file") from None
    except OSError as error:
        raise DoiProxyError(f"--bundle {path}: cannot be written: {error.strerror}") from error
    print(path)
    for name in parts:
        print(f"  {name}", file=sys.stderr)
    return 0


#: A DOI name in a finding, such as that about a line of the library rules.
_NAME: Final = re.compile(r"10\.[0-9]{4,9}(?:/|%2F)[^\s'\"]+", re.IGNORECASE)
#: What can be an address of IPv4 or IPv6, such as one in a line of a list of networks.
_ADDRESS: Final = re.compile(r"(?<![\w.:])[0-9a-f.:]{2,45}", re.IGNORECASE)


def _collect(context: CommandContext, server: ProxyServer) -> dict[str, bytes]:
    """The files of the bundle by name. A part that fails leaves a file with the reason."""
    # `check --ready` needs this module without the checks.
    from doi_proxy.features.setup.check_command import describe_settings  # noqa: PLC0415

    token = context.settings.value("admin_token")
    sources: dict[str, Callable[[], bytes]] = {
        "versions.json": lambda: _json(_describe_versions()),
        "settings.json": lambda: _json(describe_settings(context)),
        "check.json": lambda: _json([_mask(str(finding)) for finding in context.inspect((), offline=True)]),
        "store.json": lambda: _json(asyncio.run(_describe_store(context))),
    }
    # What is fetched from a running proxy: the file in the bundle, and the target.
    fetched = {"readyz.json": "/readyz", "status.json": "/status?format=json", "metrics.txt": "/metrics"}
    for name, target in fetched.items():
        sources[name] = lambda target=target: _fetch(server, target, token)  # type: ignore[misc]
    parts = {"README.txt": _NOTE.encode()}
    for name, read in sources.items():
        try:
            parts[name] = read()
        except DoiProxyError as error:
            parts[name + ".missing"] = redact(error.message).encode() + b"\n"
    return parts


def _mask(finding: str) -> str:
    """A finding of `check` without secrets, names and addresses. Those of this machine stay."""
    return _ADDRESS.sub(_mask_address, _NAME.sub("10.…", redact(finding)))


def _mask_address(found: re.Match[str]) -> str:
    # A colon or a dot after an address belongs to the sentence.
    for text in (found[0], found[0].rstrip(".:")):
        with suppress(ValueError):
            address = ip_address(text)
            return found[0] if address.is_loopback or address.is_unspecified else found[0].replace(text, MASK)
    return found[0]


def _json(document: Any) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=False, default=str).encode() + b"\n"


def _describe_versions() -> dict[str, Any]:
    return {
        "doi-proxy": read_version(),
        "python": sys.version,
        "platform": " ".join(os.uname()[::2]),
        "packages": {distribution.metadata["Name"]: distribution.version for distribution in distributions()},
    }


async def _describe_store(context: CommandContext) -> dict[str, Any]:
    context.stores.require()
    async with context.stores.open(read_only=True) as cache:
        store = (await cache.stats()).store
    if store is None:
        return {}
    return {"entries": store.entries, "bytes": store.bytes, "healthy": store.healthy, "registry": store.registry}


def _fetch(server: ProxyServer, target: str, token: str | None) -> bytes:
    headers = {"Accept": "application/json, text/plain"}
    connect = partial(Exchange, server, _TIMEOUT, deadline=_DEADLINE)
    with send_request(connect, token, "GET", target, headers) as (status, exchange):
        if status not in (http.client.OK, http.client.SERVICE_UNAVAILABLE):
            raise exchange.refusal({})
        return exchange.read(16 * 1024 * 1024)
