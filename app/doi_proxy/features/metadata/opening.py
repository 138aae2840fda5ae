"""Opens what fetches works, from the settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.feature import Core
from doi_proxy.features.metadata.client import MetadataClient
from doi_proxy.features.metadata.works import FetchBudget, Works
from doi_proxy.networks.allowed_addresses import AllowedAddresses
from doi_proxy.system.background import Service
from doi_proxy.system.options import Settings
from doi_proxy.system.version import read_version
from doi_proxy.upstream.client import identify

#: Seconds between two writes of the note.
_SAVE_INTERVAL: Final = 60.0


class OpenWorks(Service):
    """The works of one process, and the client that fetches them."""

    def __init__(self, works: Works, client: MetadataClient, cache: TieredStore) -> None:
        self.works = works
        self._cache = cache
        self._client = client

    async def run(self) -> None:
        """Take the works of the store into memory, and add new ones to them. At the end, the cache is still open."""
        await self._cache.wait_for_store()
        await self.works.load()
        try:
            while True:
                await asyncio.sleep(_SAVE_INTERVAL)
                await self.works.save()
        finally:
            await self.works.save()

    async def stop(self) -> None:
        """End the fetches, and close the connections."""
        await self.works.stop()
        await self._client.aclose()


def open_works(
    settings: Settings,
    core: Core,
    count: Callable[[str], None] = lambda result: None,
    clock: Callable[[], float] = time.time,
    *,
    waits: bool = False,
) -> OpenWorks:
    """The works, which are paid from the share of the budget for what no client requested. Raises ConfigurationError.

    `count` is called with the result of each fetch. `clock` is in seconds since the epoch. With `waits`, a fetch
    waits until there is room in that share.
    """
    allowed = AllowedAddresses(settings.upstream_private_servers)
    authorities = None if settings.upstream_ca_bundle is None else str(settings.upstream_ca_bundle)
    identity = identify(f"doi-proxy/{read_version()}", settings.upstream_contact)
    client = MetadataClient(allowed, identity, authorities)
    budget = FetchBudget(core.background, core.upstream.budget, waits=waits)
    return OpenWorks(Works(core.destinations, client.fetch, budget, core.cache, count, clock), client, core.cache)
