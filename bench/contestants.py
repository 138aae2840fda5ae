"""The contestants: doi-proxy in four ways, and the servers that it is compared with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import Cores
from bench.names import HOT, path_of
from bench.nginx import CACHING, CONSTANT
from bench.servers import Server, program, python, served
from bench.tools import NotMeasured, need, search_path
from doi_proxy.assembly.settings import Settings

#: The setting that turns the express lane on and off.
EXPRESS: Final = "express_lane"
#: Under load, the budget must not limit queries for names that are not cached.
GENEROUS: Final = {
    "DOI_PROXY_UPSTREAM_RATE": "1000000",
    "DOI_PROXY_UPSTREAM_BURST": "1000000",
    "DOI_PROXY_UPSTREAM_MAX_CONCURRENCY": "32",
    "DOI_PROXY_UPSTREAM_CONTACT": "mailto:bench@doi-proxy.example",
    "DOI_PROXY_LOG_LEVEL": "error",
}


@dataclass(frozen=True, slots=True)
class Site:
    """What the contestants share: a folder, the cores, the stand-in for the upstream, the store with all names."""

    folder: Path
    cores: Cores
    upstream: str
    store: Path


@dataclass(frozen=True, slots=True)
class Contestant:
    """One contestant. `resolves` is False if it sends the same answer to every request."""

    name: str
    start: Callable[[Site], AbstractContextManager[Server]]
    resolves: bool = True


def proxy_environment(upstream: str, store: str, *, express: bool | None = None) -> dict[str, str]:
    """The settings of a measured proxy. Raises NotMeasured if this version has no setting for `express`."""
    chosen = {**GENEROUS, "DOI_PROXY_UPSTREAM_URL": upstream, "DOI_PROXY_STORE_URL": store}
    if express is not None and EXPRESS in Settings.model_fields:
        chosen[f"DOI_PROXY_{EXPRESS.upper()}"] = str(express).lower()
    elif express:
        raise NotMeasured("not measured: this version has no prepared answers")
    return chosen


def proxy_command(port: int) -> list[str]:
    """The command that serves the proxy on a port; its settings are in the environment."""
    return [program("doi-proxy"), "serve", "--port", str(port)]


def proxy(
    label: str,
    *,
    express: bool = True,
    command: Callable[[int], list[str]] = proxy_command,
    settings: Mapping[str, str] | None = None,
    scheme: str = "http",
) -> Contestant:
    """doi-proxy with settings of the environment; `{folder}` in a value is the site's folder."""

    @contextmanager
    def start(site: Site) -> Iterator[Server]:
        chosen = {name: value.format(folder=site.folder) for name, value in (settings or {}).items()}
        # Each contestant has its own copy of the store, so none finds records that another one fetched.
        store = site.folder / f"{label.replace(', ', '-').replace(' ', '-')}.sqlite3"
        if "DOI_PROXY_STORE_URL" not in chosen:
            shutil.copyfile(site.store, store)
        usual = proxy_environment(site.upstream, f"sqlite:///{store}", express=express)
        environment = {**usual, **chosen}
        cores = site.cores.server
        with served(command, cores=cores, environment=environment, path=path_of(HOT), scheme=scheme) as server:
            yield server

    return Contestant(label, start)


def by_uvicorn(app: str, *flags: str) -> Callable[[int], list[str]]:
    plain = ("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning")
    return lambda port: python("-m", "uvicorn", app, "--port", str(port), *plain, *flags)


def _uvicorn(label: str, app: str, *flags: str) -> Contestant:
    command = by_uvicorn(app, *flags)
    return Contestant(label, lambda site: served(command, cores=site.cores.server), resolves=False)


def nginx(label: str, configuration: str, *, resolves: bool, scheme: str = "http") -> Contestant:
    """nginx with a configuration of the module `nginx`."""

    @contextmanager
    def start(site: Site) -> Iterator[Server]:
        need("nginx")
        folder = site.folder / label.replace(" ", "-")
        for needed in ("logs", "temp"):
            (folder / needed).mkdir(parents=True, exist_ok=True)
        file = folder / "nginx.conf"

        def command(port: int) -> list[str]:
            user = "user root;" if os.geteuid() == 0 else ""
            upstream = site.upstream.removeprefix("http://")
            values = {"port": port, "upstream": upstream, "user": user, "folder": site.folder}
            file.write_text(configuration % values, encoding="utf-8")
            found = shutil.which("nginx", path=search_path()) or "nginx"
            return [found, "-p", f"{folder}/", "-c", str(file), "-e", "stderr"]

        with served(command, cores=site.cores.server, path=path_of(HOT), scheme=scheme) as server:
            yield server

    return Contestant(label, start, resolves=resolves)


EXPRESS_ON: Final = proxy("doi-proxy", express=True)
EXPRESS_OFF: Final = proxy("doi-proxy, full path", express=False)
#: As under any ASGI server: uvicorn's own protocol does not know this application.
ASGI_ALONE: Final = proxy(
    "doi-proxy, ASGI alone", express=False, command=by_uvicorn("bench.plain_asgi:create_from_environment", "--factory")
)
BARE_ASGI: Final = _uvicorn("bare ASGI", "bench.constant:bare", "--lifespan", "off")
FASTAPI: Final = _uvicorn("FastAPI route", "bench.constant:fastapi", "--factory")
NGINX: Final = nginx("nginx constant", CONSTANT, resolves=False)
NGINX_CACHE: Final = nginx("nginx proxy_cache", CACHING, resolves=True)
ALL: Final = (EXPRESS_ON, EXPRESS_OFF, ASGI_ALONE, BARE_ASGI, FASTAPI, NGINX, NGINX_CACHE)
