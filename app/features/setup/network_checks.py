"""Checks that use the network: whether the store and each upstream answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from app.assembly.resolving import assemble, open_cache
from app.assembly.settings import Settings
from app.cache.upgrade import STORE_FORMAT, Survey, Surveyable
from app.errors import ConfigurationError, CouldNotVerify, DoiProxyError, StoreError
from app.features.native.feature import is_native
from app.features.native.opening import QueryTokens, open_native
from app.features.redaction import redact
from app.features.setup.configuration import Configuration
from app.features.setup.finding import Finding
from app.upstream.source import CONTROL_NAME, UpstreamQuery

_SQLITE: Final = "sqlite:///"
#: Longest time for the check of the store, and of one upstream, in seconds.
_DEADLINE: Final = 15.0
#: Entries that the check of an upgrade examines. 200,000 take about 5 s.
_MAX_SURVEY: Final = 200_000
#: Memory tier of a check, in bytes.
_MEMORY_BYTES: Final = 1024 * 1024


def find_store_failure(configuration: Configuration) -> Iterator[Finding]:
    """A store that cannot be opened, or does not answer. A SQLite file that does not exist yet is not created."""
    url = configuration.settings.store_url
    try:
        if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists():
            return
    except OSError:
        # The check of the folder has reported it.
        return
    failure = _run(_try_store(configuration.settings))
    if failure:
        yield Finding(
            "error",
            configuration.source("store_url"),
            f"{redact(url)}: {failure}",
            "start the store, or correct store_url",
        )


async def _try_store(settings: Settings) -> None:
    cache = open_cache(settings.model_copy(update={"cache_memory_bytes": _MEMORY_BYTES}), read_only=True)
    try:
        stats = (await cache.stats()).store
        if stats is not None and not stats.healthy:
            raise StoreError(f"The store does not work: {stats.detail}")
    finally:
        await cache.close()


def find_upgrade(configuration: Configuration) -> Iterator[Finding]:
    """What the next start keeps of a store of an earlier release. The store is not changed."""
    settings = configuration.settings
    try:
        if settings.store_url.startswith(_SQLITE) and not Path(settings.store_url.removeprefix(_SQLITE)).exists():
            return
        survey = asyncio.run(asyncio.wait_for(_survey(settings), _DEADLINE))
    except (OSError, StoreError, ConfigurationError, TimeoutError):
        # The check of the store has reported it.
        return
    if survey is not None and survey.format < STORE_FORMAT and survey.total:
        yield _describe(configuration.source("store_url"), redact(settings.store_url), survey)


async def _survey(settings: Settings) -> Survey | None:
    cache = open_cache(settings.model_copy(update={"cache_memory_bytes": _MEMORY_BYTES}), read_only=True)
    try:
        store: object = cache.store
        return await store.survey(_MAX_SURVEY) if isinstance(store, Surveyable) else None
    finally:
        await cache.close()


def _describe(source: str, url: str, survey: Survey) -> Finding:
    found = f"format {survey.format}" if survey.format else "the format of release 0.1.0 or 0.2.0"
    readable = survey.current + survey.old
    problem = (
        f"{url} has {found}, and this release writes format {STORE_FORMAT}. Of {survey.visited} entries examined"
        f" (the store has {survey.total}), {readable} are kept, {survey.old} of them are rewritten after the start, and"
        f" {survey.unreadable} are not readable"
    )
    remedy = "after the start, an earlier release refuses the store; to be able to go back, copy or export it first"
    return Finding("warning" if survey.unreadable else "note", source, problem, remedy)


def find_upstream_failure(configuration: Configuration) -> Iterator[Finding]:
    """Upstreams that cannot be reached, or do not answer as a handle API."""
    settings = configuration.settings
    if settings.mode == "sealed":
        return
    routes = settings.upstream_route_urls.values()
    for url in dict.fromkeys((*settings.upstream_urls, *routes)):
        name = "upstream_url" if url in settings.upstream_urls else "upstream_routes"
        if failure := _run(try_upstream(settings, url)):
            yield Finding(
                "error",
                configuration.source(name),
                f"{redact(url)}: {failure}",
                "correct the address, or allow this machine to reach it; HTTPS_PROXY names an egress proxy",
            )


async def try_upstream(settings: Settings, url: str) -> None:
    """Query one upstream about the control name. Raises CouldNotVerify and ConfigurationError."""
    alone = {
        "upstream_url": url,
        "upstream_routes": "",
        "store_url": "memory:",
        "workers": 1,
        "seed": None,
        "cache_memory_bytes": _MEMORY_BYTES,
    }
    parts = assemble(settings.model_copy(update=alone))
    try:
        if is_native(url):
            # A server that is not responsible for the control name works too.
            source = open_native(settings, url, QueryTokens.of(parts.upstream.budget))
            try:
                await source.probe()
            finally:
                await source.aclose()
        else:
            await parts.upstream.source.fetch(UpstreamQuery(CONTROL_NAME))
    finally:
        await parts.upstream.source.aclose()
        await parts.cache.close()


def _run(work: Coroutine[Any, Any, None]) -> str | None:
    """The reason of a failure, None without one."""
    try:
        asyncio.run(asyncio.wait_for(work, _DEADLINE))
    except (StoreError, ConfigurationError) as error:
        return error.message
    except CouldNotVerify as error:
        return f"{error.message} {redact(error.detail)}".strip()
    except DoiProxyError as error:
        return error.message
    except TimeoutError:
        return f"no answer within {_DEADLINE:g} s"
    return None
