"""Builds the engine of batches from the settings, for HTTP, commands and assistants alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from app.assembly import Parts
from app.resolver.batch import BatchBounds, Batches
from app.resolver.destination import Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.verdict import Verdict


def build_batches(
    parts: Parts,
    clock: Callable[[], float] = time.time,
    *,
    prefixes: PrefixChain | None = None,
    count: Callable[[Verdict], None] = lambda verdict: None,
) -> Batches:
    """The engine. `count` is called with the verdict of each row."""
    settings, chain = parts.settings, prefixes or PrefixChain()
    host = urlsplit(settings.public_url or "").hostname
    return Batches(
        parts.resolver,
        Destinations(parts.resolver, chain, resolves=settings.resolve),
        chain,
        BatchBounds(
            concurrency=settings.batch_concurrency,
            window=settings.batch_window,
            patience=settings.batch_patience,
            memory_bytes=settings.batch_memory_bytes,
        ),
        clock,
        time.monotonic,
        count,
        own_hosts=frozenset({host} if host else ()),
    )
