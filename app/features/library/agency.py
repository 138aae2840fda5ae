"""Looks up the registration agency of a name, for the rules that have a condition about it."""

from __future__ import annotations

import asyncio
from typing import Final

from app.doi.name import HandleName
from app.errors import CouldNotVerify
from app.features.library.library import FindAgency
from app.resolver.prefix_chain import PrefixChain
from app.resolver.registration_agency import agency_name
from app.web.client_network import ClientNetworks
from app.web.conditions import demand_for_others
from app.web.request import Request

#: Seconds that a redirect waits for the registration agency.
_AGENCY_TIMEOUT: Final = 1.0


def agency_finder(prefixes: PrefixChain, networks: ClientNetworks) -> FindAgency:
    """The look-up, at the cost of the client of the request."""

    async def find(request: Request, name: HandleName) -> str | None:
        demand = demand_for_others(request, networks.client_of(request.client_address))
        try:
            async with asyncio.timeout(_AGENCY_TIMEOUT):
                services = await prefixes.services(name.prefix, demand)
        except (TimeoutError, CouldNotVerify):
            return None
        return agency_name([(service.name, service.record) for service in services])

    return find
