"""The only place that puts parts together: settings in, an ASGI application out."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from app import __version__
from app.assembly import Parts, assemble, open_cache
from app.cache.bundle import Refused, read_bundle
from app.cache.entry import Entry
from app.cache.tiered import TieredStore
from app.errors import ConfigurationError, StoreError
from app.resolver.prefix_chain import PrefixChain
from app.resolver.which_ra import WhichRa
from app.settings import Settings, load
from app.web.api import HandleApi
from app.web.application import Application, Face
from app.web.country import open_countries
from app.web.documented import create_documented, other_paths
from app.web.error_handlers import ErrorPages
from app.web.express_lane import ExpressLane
from app.web.health import Readiness
from app.web.pages import Link, Pages
from app.web.redirect import Facts, Redirects

log = logging.getLogger(__name__)

#: Static files by path: media type and file in app/web/static.
STATIC_FILES: Final = {
    "/static/style.css": ("text/css;charset=utf-8", "style.css"),
    "/static/favicon.svg": ("image/svg+xml", "favicon.svg"),
    "/favicon.ico": ("image/svg+xml", "favicon.svg"),
}


def create(
    settings: Settings, *, clock: Callable[[], float] = time.time, chance: Callable[[], float] = random.random
) -> Application:
    """The application of one process; `clock` tells seconds since the epoch. Raises ConfigurationError."""
    parts = assemble(settings, clock)
    sub_path = urlsplit(settings.public_url or "").path.rstrip("/")
    pages = Pages(base_url_hint=settings.public_url or "", product_version=__version__, contact=settings.web_contact)
    link = Link(base=sub_path)
    errors = ErrorPages(pages=pages, link=link)
    express = ExpressLane(parts.resolver, clock, _count_nothing) if settings.express_lane else None
    api = HandleApi(resolver=parts.resolver, clock=clock, max_age=settings.web_max_age, express=express)
    prefixes = PrefixChain(parts.resolver)
    redirects = Redirects(
        resolver=parts.resolver,
        prefixes=prefixes,
        api=api,
        pages=pages,
        link=link,
        facts=Facts(clock=clock, chance=chance, country=open_countries(settings.country_database)),
        resolves=settings.resolve,
        max_age=settings.web_max_age,
        express=express,
    )
    which_ra = WhichRa(parts.resolver, prefixes, parts.upstream.agencies)
    documented = create_documented(
        version=__version__,
        lifespan=lambda app: _lifespan(parts),
        readiness=lambda: _readiness(parts),
        docs_page=lambda schema: pages.docs(link, schema),
        files=_static_files(),
        server_url=settings.public_url or "/",
    )
    return Application(
        Face(redirects=redirects, which_ra=which_ra, api=api, errors=errors, pages=pages, link=link),
        documented=documented,
        other_paths=other_paths(documented),
        public_url=settings.public_url.rstrip("/") if settings.public_url else None,
        sub_path=sub_path.encode(),
        express=express,
    )


def _count_nothing(route: str, method: str, status: int) -> None:
    return None


def create_from_environment() -> Application:
    """The application of a worker process, which was started with its settings in the environment."""
    settings = load({}, os.environ)
    logging.basicConfig(level=settings.log_level.upper())
    return create(settings)


def prepare(settings: Settings) -> None:
    """Find out before serving whether the store and the seed can be used. Raises ConfigurationError."""
    if settings.seed is not None and not settings.seed.is_file():
        raise ConfigurationError(f"--seed {settings.seed}: there is no such file")
    try:
        asyncio.run(_open_and_close(settings))
    except StoreError as error:
        raise ConfigurationError(f"--store-url {settings.store_url}: {error.message}") from error


async def _open_and_close(settings: Settings) -> None:
    await open_cache(settings).close()


@asynccontextmanager
async def _lifespan(parts: Parts) -> AsyncIterator[None]:
    if parts.settings.seed is not None:
        await _load_seed(parts.settings.seed, parts.cache, parts.settings.cache_grace)
    watching = asyncio.create_task(parts.cache.watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await parts.resolver.close()
        await parts.upstream.source.aclose()
        await parts.cache.close()


async def _load_seed(path: Path, cache: TieredStore, grace: float) -> None:
    """Put the seed's records where nothing newer is known: already expired, so that the upstream is asked first."""
    kept = 0
    with path.open("rb") as file:
        for item in read_bundle(file):
            if isinstance(item, Entry):
                expired = replace(item, fetched_at=0.0, fresh_until=0.0, stale_until=time.time() + grace)
                kept += await cache.put_newer(expired)
            elif isinstance(item, Refused):
                log.warning("%s, line %s is left out: %s", path, item.number, item.reason)
    log.info("%s: %s records loaded as expired", path, kept)


async def _readiness(parts: Parts) -> Readiness:
    stats = await parts.cache.stats()
    store = "memory only" if stats.store is None else stats.store.detail
    # A store that fails is a slower cache, not a reason to send nobody here.
    return Readiness(ready=True, detail={"memory": f"{stats.memory_entries} entries", "store": store})


def _static_files() -> dict[str, tuple[str, bytes]]:
    folder = resources.files("app.web").joinpath("static")
    return {path: (kind, folder.joinpath(file).read_bytes()) for path, (kind, file) in STATIC_FILES.items()}
