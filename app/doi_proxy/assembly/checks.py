"""Checks before a start, of the parts that the settings describe and of the features; and the store of a command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from doi_proxy.assembly.core import (
    UNOBSERVED,
    SuppliedParts,
    assemble,
    build_pages,
    describe_left_file,
    open_cache,
    open_core,
    read_resolver_timeouts,
)
from doi_proxy.assembly.features import installed, upstream_kinds
from doi_proxy.assembly.settings import Settings, validate
from doi_proxy.assembly.settings.sources import SourcedValue
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import ConfigurationError, CouldNotVerify, DoiProxyError, StoreError
from doi_proxy.features.feature import Core, Observers, require_libraries
from doi_proxy.store.file import find_store_file
from doi_proxy.system.check import Check, Finding, Inspection
from doi_proxy.system.options import redact
from doi_proxy.upstream import upstream_log
from doi_proxy.upstream.source import CONTROL_NAME, UpstreamQuery
from doi_proxy.upstream.upstream_log import CORRECT_ADDRESS, find_remedy
from doi_proxy.web.pages import Pages

#: Longest time for the check of the store, and of one upstream, in seconds.
_DEADLINE: Final = 15.0
#: Memory tier of a check, in bytes.
_CHECK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CoreInspection(Inspection):
    """An inspection that can open the parts of the core."""

    settings: Settings

    def open_pages(self) -> Pages:
        """See Inspection."""
        return build_pages(self.settings)


def inspect(values: Mapping[str, SourcedValue], checks: Iterable[Check], *, offline: bool) -> list[Finding]:
    """Every finding about these settings, by `checks`, those of the core and those of the features.

    A value that cannot be used is an error. The checks then see its default. A check does not repeat the source of an
    error that an earlier one has found: a file that is missing has no content either.
    """
    settings, problems = validate(values)
    # A value that cannot be used keeps its source: what the default in its place meets is not reported.
    sources = {name: sourced.source for name, sourced in values.items()}
    findings = [Finding("error", problem.source, problem.message) for problem in problems]
    if settings is None:
        wrong = {problem.name for problem in problems}
        values = {name: sourced for name, sourced in values.items() if name not in wrong}
        settings, more = validate(values)
        findings += [Finding("error", problem.source, problem.message) for problem in more if problem not in problems]
    if settings is None:
        return findings
    inspection = CoreInspection(settings, sources, offline)
    network = () if offline else (find_upstream_failure,)
    for check in (*checks, find_feature_problems, find_left_file, find_store_failure, *network):
        known = {finding.source for finding in findings if finding.severity == "error"}
        findings += [
            finding for finding in check(inspection) if finding.severity != "error" or finding.source not in known
        ]
    return findings


def find_feature_problems(inspection: Inspection) -> Iterator[Finding]:
    """What the features find. Of one without its library, only that, and only if it is switched on."""
    for feature in installed():
        try:
            is_on = feature.is_on(inspection.settings)
        except ConfigurationError as error:
            yield Finding("error", "", error.message)
            continue
        try:
            require_libraries(feature)
        except ConfigurationError as error:
            if is_on:
                yield Finding("error", "", error.message)
            continue
        yield from feature.check(inspection)


def find_store_failure(inspection: CoreInspection) -> Iterator[Finding]:
    """A store that cannot be opened, or does not answer. A SQLite file that does not exist yet is not created.

    Offline, no server is contacted, and its URL is checked all the same.
    """
    url = inspection.settings.store_url
    if _is_missing(url):
        return
    failure = _find_failure(
        _try_store(inspection.settings, contacts=not inspection.offline or url.startswith("sqlite:///"))
    )
    if failure:
        source = inspection.source("store_url")
        yield Finding("error", source, f"{redact(url)}: {failure.rstrip('.')}", "start the store, or correct store_url")


def _is_missing(store_url: str) -> bool:
    """Whether a store is a file that does not exist, or is out of reach, as the check of its folder reports."""
    try:
        file = find_store_file(store_url)
        return file is not None and not file.exists()
    except OSError:
        return True


async def _try_store(settings: Settings, *, contacts: bool) -> None:
    cache = open_cache(settings.model_copy(update={"cache_memory_bytes": _CHECK_BYTES}), read_only=True)
    try:
        stats = (await cache.stats()).store if contacts else None
        if stats is not None and not stats.healthy:
            raise StoreError(f"The store does not work: {stats.detail}")
    finally:
        await cache.close()


def find_left_file(inspection: CoreInspection) -> Iterator[Finding]:
    """A file that is not used, because it is not a store of this format."""
    left = describe_left_file(inspection.settings)
    if left is not None:
        yield Finding("warning", inspection.source("store_url"), left, "name that file in store_url")


def find_upstream_failure(inspection: CoreInspection) -> Iterator[Finding]:
    """HTTP upstreams that cannot be reached, or do not answer as a handle API. Features check the others."""
    settings = inspection.settings
    if settings.mode == "sealed":
        return
    for url in _urls(settings):
        if urlsplit(url).scheme not in upstream_kinds() and (failure := _find_failure(_try_upstream(settings, url))):
            name = "upstream_url" if url in settings.upstream_url else "upstream_routes"
            remedy = find_remedy(failure) or CORRECT_ADDRESS
            yield Finding("error", inspection.source(name), f"{redact(url)}: {failure}", remedy)


def examine_upstreams(settings: Settings) -> list[Finding]:
    """A note for each upstream and each transport, and an error for an upstream that does not answer."""
    findings: list[Finding] = []
    for url in _urls(settings):
        kind = upstream_kinds().get(urlsplit(url).scheme)
        if kind is not None:
            findings += asyncio.run(kind.examine(settings, url))
            continue
        began = time.monotonic()
        if failure := _find_failure(_try_upstream(settings, url)):
            findings.append(Finding("error", redact(url), failure, find_remedy(failure) or CORRECT_ADDRESS))
        else:
            findings.append(Finding("note", redact(url), f"answers, {(time.monotonic() - began) * 1000:.0f} ms"))
    return findings


def _urls(settings: Settings) -> Iterable[str]:
    return dict.fromkeys((*settings.upstream_url, *settings.upstream_route_urls.values()))


async def _try_upstream(settings: Settings, url: str) -> None:
    """Query one upstream about the control name. Raises CouldNotVerify and ConfigurationError."""
    alone = {"upstream_url": (url,), "upstream_routes": (), "store_url": "memory:"}
    parts = assemble(settings.model_copy(update=alone | {"cache_memory_bytes": _CHECK_BYTES}))
    try:
        await parts.upstream.source.fetch(UpstreamQuery(CONTROL_NAME))
    finally:
        await parts.upstream.source.aclose()
        await parts.cache.close()


def _find_failure(work: Coroutine[Any, Any, None]) -> str | None:
    """The reason of a failure, None without one."""
    # The finding has the words that a service would log.
    was_disabled, upstream_log.log.disabled = upstream_log.log.disabled, True
    try:
        asyncio.run(asyncio.wait_for(work, _DEADLINE))
    except CouldNotVerify as error:
        return f"{error.message} {redact(error.detail)}".strip()
    except (StoreError, ConfigurationError, DoiProxyError) as error:
        return error.message
    except TimeoutError:
        return f"no answer within {_DEADLINE:g} s"
    finally:
        upstream_log.log.disabled = was_disabled
    return None


#: Size of the memory tier of a command, in bytes: enough for the prefix records that names share.
_COMMAND_BYTES: Final = 8 * 1024 * 1024
#: Timeout of the store, in seconds. It is long because no client waits and answers are large.
_COMMAND_TIMEOUT: Final = 5.0


class CommandStores:
    """See doi_proxy.features.feature.Stores."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def require(self) -> None:
        """See Stores."""
        file = find_store_file(self._settings.store_url)
        if file is None:
            return
        store = f"--store-url {redact(self._settings.store_url)}"
        try:
            file.stat()
        except FileNotFoundError as error:
            left = describe_left_file(self._settings)
            problem = "this file does not exist" if left is None else f"{left}, which does not exist"
            raise ConfigurationError(f"{store}: {problem}; the current folder is {Path.cwd()}") from error
        except OSError as error:
            raise ConfigurationError(
                f"{store}: cannot be opened: {error.strerror}; run the command as the user of the service"
            ) from error

    @asynccontextmanager
    async def open(self, *, read_only: bool = False) -> AsyncIterator[TieredStore]:
        """See Stores."""
        with self._name_store_in_errors():
            cache = open_cache(self._for_command(), read_only=read_only, timeout=_COMMAND_TIMEOUT)
        try:
            yield cache
            await cache.flush()
            await cache.check()
        finally:
            await cache.close()

    @asynccontextmanager
    async def open_online(self) -> AsyncIterator[Core]:
        """See Stores."""
        if self._settings.mode == "sealed":
            raise ConfigurationError(
                "--mode sealed: a sealed proxy does not query the upstream; run this command with --mode online"
            )
        async with self._open(self._for_command()) as core:
            yield core

    @asynccontextmanager
    async def open_sealed(self, observers: Observers | None = None) -> AsyncIterator[Core]:
        """See Stores."""
        async with self._open(self._for_command({"mode": "sealed"}), observers, read_only=True) as core:
            yield core

    @asynccontextmanager
    async def open_for_lists(self) -> AsyncIterator[Core]:
        """See Stores."""
        is_memory = self._settings.store_url.startswith("memory:")
        async with self._open(self._settings if is_memory else self._for_command()) as core:
            yield core

    @asynccontextmanager
    async def open_as_service(self) -> AsyncIterator[Core]:
        """See Stores."""
        memory = min(self._settings.cache_memory_bytes, _COMMAND_BYTES)
        async with self._open(
            self._settings.model_copy(update={"cache_memory_bytes": memory}), is_service=True
        ) as core:
            yield core

    def _for_command(self, changes: dict[str, Any] | None = None) -> Settings:
        """The settings of a proxy, for a command on the same store. Raises ConfigurationError for `memory:`."""
        settings = self._settings
        if settings.store_url.startswith("memory:"):
            raise ConfigurationError(
                "--store-url memory: this store ends with its process; give the store of the proxy, "
                "such as sqlite:///path, or use show, refresh and purge with --server URL"
            )
        return settings.model_copy(update={"cache_memory_bytes": _COMMAND_BYTES} | (changes or {}))

    @asynccontextmanager
    async def _open(
        self,
        settings: Settings,
        observers: Observers | None = None,
        *,
        read_only: bool = False,
        is_service: bool = False,
    ) -> AsyncIterator[Core]:
        """The core with the timeouts of a command, whose store must not fail; or as it `is_service`."""
        # A command that only reads the store needs no upstream and no feature, whose import takes a second.
        if not settings.store_url.startswith("memory:"):
            # A service with this store may query the upstream too, which is to see one client.
            rate, burst = settings.upstream_rate, settings.upstream_burst
            # The share of the upstream's budget that a command takes beside a service.
            share = {"upstream_rate": rate * 0.5, "upstream_burst": max(1.0, burst * 0.5)}
            settings = settings.model_copy(update=share)
        observers, parts = observers or UNOBSERVED, SuppliedParts()
        with self._name_store_in_errors():
            if not is_service:
                cache = open_cache(settings, observer=observers.store, read_only=read_only, timeout=_COMMAND_TIMEOUT)
                # Seconds that a command waits for the fresh record even if there is a stale one.
                timeouts = replace(read_resolver_timeouts(), upstream=3_600.0, recheck=0.0)
                parts = SuppliedParts(cache=cache, timeouts=timeouts)
            core = open_core(settings, observers=observers, parts=parts, read_only=read_only)
        try:
            yield core
            await core.cache.flush()
            if not is_service:
                await core.cache.check()
        finally:
            await core.resolver.close()
            await core.upstream.source.aclose()
            await core.cache.close()

    @contextmanager
    def _name_store_in_errors(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise ConfigurationError(f"--store-url {redact(self._settings.store_url)}: {error.message}") from error
