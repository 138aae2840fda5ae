"""Opens what fetches works, from the settings."""

from __future__ import annotations

from ipaddress import ip_network

from app import __version__
from app.features.feature import Core, Service, required
from app.features.metadata.client import MetadataClient
from app.features.metadata.works import FetchBudget, Works
from app.features.native.addresses import AllowedAddresses
from app.features.network_list import NetworkList
from app.features.options import Settings
from app.features.suggestions.suggested_names import SuggestedNames
from app.upstream.client import identify


class OpenWorks(Service):
    """The works of one process, and the client that fetches them."""

    def __init__(self, works: Works, client: MetadataClient) -> None:
        self.works = works
        self._client = client

    async def stop(self) -> None:
        """End the fetches, and close the connections."""
        await self.works.stop()
        await self._client.aclose()


def open_works(settings: Settings, core: Core, names: SuggestedNames, *, waits: bool = False) -> OpenWorks:
    """The works, which are paid from the share of the budget that `names` has. Raises ConfigurationError.

    With `waits`, a fetch waits until there is room in that share.
    """
    refused = NetworkList(map(ip_network, settings.upstream_refused_networks.split()))
    allowed = AllowedAddresses(settings.upstream_private_servers, refused)
    authorities = None if settings.upstream_ca_bundle is None else str(settings.upstream_ca_bundle)
    identity = identify(f"doi-proxy/{__version__}", settings.upstream_contact)
    client = MetadataClient(allowed, identity, authorities)
    budget = FetchBudget(required(names.background), core.upstream.budget, waits=waits)
    return OpenWorks(Works(core.destinations, client.fetch, budget), client)
