"""Checks of the settings against this machine: memory, and the port."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.setup.unit import usual_instances
from doi_proxy.proxy_client.exchange import Exchange, ProxyFailure
from doi_proxy.proxy_client.running_proxy import find_server
from doi_proxy.server.listening import UNIX, listen, listen_at, release
from doi_proxy.system.check import Finding, Inspection
from doi_proxy.system.files import read_regular
from doi_proxy.system.options import Settings

#: The memory limit of the control group in version 2 and version 1 (Linux, cgroups(7)).
_GROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: The longest content of such a file, in bytes.
_MOST_LIMIT_BYTES: Final = 4096
_MIB: Final = 1024 * 1024
#: Memory of one process without its caches, in bytes. Measured: 71 MB resident.
_PROCESS_BYTES: Final = 80 * _MIB
_TIMEOUT: Final = 3.0
_MAX_ANSWER: Final = 1_000


def find_machine_limits(inspection: Inspection) -> Iterator[Finding]:
    """More memory for the caches of the instances than there is."""
    settings = inspection.settings
    express = settings.express_memory_bytes if settings.express_lane else 0
    # Instances can be on several machines: at most as many are here as `setup` enables.
    here = min(settings.instances, usual_instances())
    needed = here * (settings.cache_memory_bytes + express + _PROCESS_BYTES)
    available = memory_limit()
    if available is not None and needed > available:
        yield Finding(
            "warning",
            inspection.source("cache_memory_bytes"),
            f"the caches of {here} instances may grow to {needed // _MIB} MiB; this machine or control group has "
            f"{available // _MIB} MiB",
            "lower cache_memory_bytes, express_memory_bytes or instances",
        )


def memory_limit() -> int | None:
    """The memory that this process may use, in bytes: the physical memory or the limit of its control group."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical] if physical > 0 else []
    for path in _GROUP_LIMITS:
        try:
            text = read_regular(path, _MOST_LIMIT_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits, default=None)


def find_port_in_use(inspection: Inspection) -> Iterator[Finding]:
    """A port that cannot be opened. A doi-proxy that already answers there is only a note."""
    settings = inspection.settings
    try:
        release(listen(settings.host, settings.port))
    except DoiProxyError as error:
        is_socket = settings.host.startswith(UNIX)
        source = inspection.source("host" if is_socket else "port")
        if _is_doi_proxy(settings):
            place = settings.host if is_socket else f"port {settings.port}"
            yield Finding("note", source, f"a doi-proxy already answers on {place}")
        else:
            problem, _, remedy = error.message.partition("; ")
            yield Finding("error", source, problem, remedy)


def find_management_problems(inspection: Inspection) -> Iterator[Finding]:
    """Management addresses that cannot be opened while no doi-proxy answers on the main port."""
    settings = inspection.settings
    if settings.management_listen and not _is_doi_proxy(settings):
        for address in settings.management_listen:
            yield from inspection.find_refusal("management_listen", partial(_try_address, address))


def _try_address(address: str) -> None:
    release(listen_at(address))


def _is_doi_proxy(settings: Settings) -> bool:
    try:
        with Exchange(find_server(settings, None), _TIMEOUT) as exchange:
            return exchange.send("GET", "/healthz", {}) == http.client.OK and b'"status"' in exchange.read(_MAX_ANSWER)
    except (ProxyFailure, http.client.HTTPException, ValueError):
        # The last two are about a host that is none.
        return False
