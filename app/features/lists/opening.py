"""Builds the engine of lists, for HTTP, commands and assistants."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.features.feature import Core
from app.features.lists.batch import Batches
from app.features.lists.name_lookup import BatchBounds
from app.features.lists.settings import BatchSettings
from app.features.options import Settings
from app.features.suggestions.opening import build_suggested_names
from app.features.suggestions.suggested_names import SuggestedNames


def build_batches(
    settings: Settings,
    core: Core,
    names: SuggestedNames | None = None,
    clock: Callable[[], float] = time.time,
    count: Callable[[str], None] = lambda verdict: None,
) -> Batches:
    """The engine. `count` is called with the verdict of each row."""
    group = settings.group(BatchSettings)
    bounds = BatchBounds(concurrency=group.batch_concurrency, patience=group.batch_wait_timeout)
    names = names or build_suggested_names(settings, core.resolver, settings.public_url)
    return Batches(core.destinations, bounds, clock, time.monotonic, names, count)
