"""Parts of the application with the values of the default settings, for tests of one part."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from doi_proxy.assembly.core import open_cache, read_resolver_timeouts, read_ttl_policy
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.commands.commands import ParsedContext
from doi_proxy.resolver.fetcher import FailureMemory, ResolverOptions, ResolverTimeouts
from doi_proxy.resolver.resolution import ResolutionObserver, TtlPolicy
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.client import ClientIdentity, HandleClient, HttpOptions
from doi_proxy.upstream.source import Source

DEFAULTS: Final = Settings()
#: For a command of a store, in seconds.
_PATIENCE: Final = 30.0


def usual_cache(url: str, *, clock: Callable[[], float]) -> TieredStore:
    """The cache on the store at `url`. On a busy machine, a server answers late."""
    return open_cache(Settings(store_url=url), clock, timeout=_PATIENCE)


def command_context(settings: Settings) -> ParsedContext:
    """What a command gets, with these settings."""
    context = ParsedContext(argparse.Namespace())
    context.settings = settings
    return context


def usual_ttl_policy(**bounds: float) -> TtlPolicy:
    """The TTL policy, except for these bounds."""
    return replace(read_ttl_policy(DEFAULTS), **bounds)


def usual_timeouts(**seconds: float) -> ResolverTimeouts:
    """The resolver's timeouts, except for these seconds."""
    return replace(read_resolver_timeouts(), **seconds)


def usual_options(**seconds: float) -> ResolverOptions:
    """How the resolver queries, except for these timeouts."""
    return ResolverOptions(usual_ttl_policy(), usual_timeouts(**seconds))


def usual_resolver(
    cache: TieredStore,
    source: Source,
    clock: Callable[[], float],
    observer: ResolutionObserver | None = None,
    **seconds: float,
) -> Resolver:
    """A resolver that queries again after each failure, except for these timeouts."""
    failures = FailureMemory(ttl=0, most=0, max_bytes=1_000_000)
    return Resolver(cache, source, clock, options=usual_options(**seconds), failures=failures, observer=observer)


def usual_api(base_url: str, **options: Any) -> HandleClient:
    """The client of one upstream, except for these options. Every further request of a question is allowed."""
    parts: dict[str, Any] = {"clock": time.time, "may_ask_again": _allow}
    parts |= {name: options.pop(name) for name in ("clock", "may_ask_again", "transport") if name in options}
    identity = ClientIdentity(
        "doi-proxy/1.0", options.pop("contact", None), options.pop("loop_id", "doi-proxy-0123456789abcdef")
    )
    usual = HttpOptions(total_timeout=DEFAULTS.upstream_timeout)
    return HandleClient(base_url, identity, replace(usual, **options), **parts)


async def _allow() -> bool:
    return True
