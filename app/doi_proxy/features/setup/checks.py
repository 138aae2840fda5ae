"""What `doi-proxy check` looks for in settings and on this machine, besides the parts of the core and the features."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from doi_names.name import HandleName
from doi_proxy.errors import DoiProxyError
from doi_proxy.features.setup.installation import usual_instances
from doi_proxy.proxy_client import Exchange, ProxyFailure, find_server
from doi_proxy.server.listening import UNIX, listen, listen_at, release
from doi_proxy.store.file import find_store_file
from doi_proxy.system.check import Finding, Inspection, find_access_problem
from doi_proxy.system.files import read_regular
from doi_proxy.system.options import Settings, redact

#: Free bytes of a disk below which it counts as full. SQLite's log alone grows to 4 MB.
_FULL: Final = 1024 * 1024


def find_unreadable_files(inspection: Inspection) -> Iterator[Finding]:
    """Files and folders that do not exist, are of another kind, or cannot be read by this user."""
    for name in type(inspection.settings).model_fields:
        path = getattr(inspection.settings, name)
        if isinstance(path, Path) and (problem := find_access_problem(path)):
            yield Finding(
                "error", inspection.source(name), problem, "correct the path, or let the service's user read it"
            )


def find_authority_problems(inspection: Inspection) -> Iterator[Finding]:
    """A file of certificate authorities that cannot be used."""
    from doi_proxy.upstream.client import load_authorities  # noqa: PLC0415 - it takes long to import

    path = inspection.settings.upstream_ca_bundle
    if path is not None:
        yield from inspection.find_refusal("upstream_ca_bundle", lambda: load_authorities(str(path)))


def find_store_folder_problems(inspection: Inspection) -> Iterator[Finding]:
    """A SQLite file that cannot be written: by this user, in its folder, or on its disk."""
    path, source = find_store_file(inspection.settings.store_url), inspection.source("store_url")
    if path is None:
        return
    try:
        existing = next((candidate for candidate in (path, *path.parents) if candidate.exists()), Path())
    except OSError as error:
        yield Finding(
            "error",
            source,
            f"{redact(str(path))} cannot be reached: {error.strerror}",
            "correct the path, or run this check as the user of the service",
        )
        return
    if disk := _find_disk_problem(existing):
        yield Finding("error", source, *disk)
        return
    remedy = "run this check as the user of the service, or change the owner of the folder"
    if existing == path and not os.access(path, os.R_OK | os.W_OK):
        yield Finding("error", source, f"{redact(str(path))} is not writable by this user", remedy)
    elif existing == path.parent or existing == path:
        # SQLite writes its journal beside the file.
        if not os.access(path.parent, os.W_OK | os.X_OK):
            yield Finding("error", source, f"the folder {path.parent} is not writable by this user", remedy)
    elif not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        yield Finding("error", source, f"the folder {path.parent} does not exist and cannot be created", remedy)


def _find_disk_problem(path: Path) -> tuple[str, str] | None:
    """Why nothing can be written to the disk of a file or folder, and what to do. None if something can."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    place = f"the disk of {redact(str(path))}"
    if disk.f_flag & os.ST_RDONLY:
        return f"{place} is read-only", "mount it for writing; a running service then writes by itself"
    free = disk.f_bavail * disk.f_frsize
    # A file system without a fixed number of files reports 0 of 0.
    if free < _FULL or (disk.f_files and not disk.f_favail):
        left = f"{free} bytes" if free < _FULL else "no more files"
        return f"{place} is full: {left} can be written", "make room; a running service then writes by itself"
    return None


#: The memory limit of the control group in version 2 and version 1 (Linux, cgroups(7)).
_GROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_MIB: Final = 1024 * 1024
_TIMEOUT: Final = 3.0


def find_machine_limits(inspection: Inspection) -> Iterator[Finding]:
    """More memory for the caches of the instances than there is."""
    settings = inspection.settings
    express = settings.express_memory_bytes if settings.express_lane else 0
    # Instances can be on several machines: at most as many are here as `setup` enables.
    here = min(settings.instances, usual_instances())
    # Memory of one process without its caches, in bytes. Measured: 71 MB resident.
    needed = here * (settings.cache_memory_bytes + express + 80 * _MIB)
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
            # The longest content of such a file, in bytes.
            text = read_regular(path, 4096).decode("ascii").strip()
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
            return exchange.send("GET", "/healthz", {}) == http.client.OK and b'"status"' in exchange.read(1_000)
    except (ProxyFailure, http.client.HTTPException, ValueError):
        # The last two are raised for a host that is not valid.
        return False


def find_ineffective(inspection: Inspection) -> Iterator[Finding]:
    """Settings that are set and have no effect."""
    settings = inspection.settings
    is_online, is_sqlite = settings.mode == "online", settings.store_url.startswith("sqlite:")
    # Settings that depend on another one: whether that one has the value, and the condition in words.
    depending = {
        "client_burst": (bool(settings.value("client_rate")), "client_rate is set"),
        "express_memory_bytes": (settings.express_lane, "express_lane is true"),
        "privacy_level": (settings.value("access_log") != "off", "access_log is json or text"),
        "store_max_bytes": (is_sqlite, "store_url names a SQLite file"),
        "cache_negative_ttl": (is_online or bool(settings.value("seed")), "mode is online"),
        **{name: (is_online, "mode is online") for name in type(settings).model_fields if name.startswith("upstream_")},
    }
    for name, (has_effect, condition) in depending.items():
        if inspection.is_set(name) and not has_effect:
            yield Finding(
                "warning",
                inspection.source(name),
                f"{name} has an effect only if {condition}",
                "change the other setting, or remove this one",
            )


def find_contradictions(inspection: Inspection) -> Iterator[Finding]:
    """A shortest lifetime of records that is longer than the longest one."""
    floor, ceiling = inspection.settings.value("cache_ttl_floor"), inspection.settings.cache_ttl_ceiling
    if floor > ceiling:
        # The explicit value is the one to change. Usually only one of the two is set.
        name = "cache_ttl_floor" if inspection.is_set("cache_ttl_floor") else "cache_ttl_ceiling"
        yield Finding(
            "warning",
            inspection.source(name),
            f"cache_ttl_floor is {floor:g}, and cache_ttl_ceiling is only {ceiling:g}",
            "set cache_ttl_floor to at most cache_ttl_ceiling",
        )


def find_refused_routes(inspection: Inspection) -> Iterator[Finding]:
    """Routes of prefixes whose names `resolve` refuses."""
    settings = inspection.settings
    for prefix in settings.upstream_route_urls if settings.resolve == "doi" else ():
        if not HandleName(f"{prefix}/x").is_doi:
            yield Finding(
                "warning",
                inspection.source("upstream_routes"),
                f"{prefix} is not a DOI prefix, so its names are refused and the route is never used",
                'set resolve to "any", or remove the route',
            )


def find_risks(inspection: Inspection) -> Iterator[Finding]:
    """Values that work and expose the proxy or surprise its users."""
    settings, source = inspection.settings, inspection.source
    if any(network == "*" or network.endswith("/0") for network in settings.trusted_proxies):
        yield Finding(
            "warning",
            source("trusted_proxies"),
            "every client can claim any address and scheme by X-Forwarded-For and X-Forwarded-Proto",
            "set trusted_proxies to the addresses of your front proxies",
        )
    if any(map(_is_open_to_others, settings.management_listen)):
        yield Finding(
            "warning",
            source("management_listen"),
            "other machines reach the admin API, and its token travels without TLS",
            "set management_listen to addresses of this machine alone, such as 127.0.0.1:8101 and a Unix socket",
        )
    if settings.instances > 1 and settings.store_url.startswith("memory:"):
        yield Finding(
            "warning",
            source("store_url"),
            "the instances share no records, purges and imports",
            "set store_url to a SQLite file, or on several machines to a Valkey server",
        )
    if settings.upstream_contact is None and settings.mode == "online":
        yield Finding(
            "warning",
            "upstream_contact",
            "the upstream cannot write to you before it blocks you",
            "set upstream_contact to an e-mail address or a URL",
        )
    if settings.public_url is None:
        yield Finding(
            "note",
            "public_url",
            "links and redirects to this resolver use the scheme and Host of each request",
            "set public_url to the address that browsers see",
        )


def _is_open_to_others(address: str) -> bool:
    """Whether a management address is one other than loopback."""
    if address.startswith(UNIX):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
