"""/healthz, /readyz and /status: what the service is doing."""

from __future__ import annotations

import os
from ipaddress import ip_network
from typing import Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Opened, Service
from doi_proxy.features.metrics.history import SharedHistory
from doi_proxy.features.status.events import EventLog
from doi_proxy.features.status.http import add_health
from doi_proxy.features.status.keeping import StatusKeeper, find_place
from doi_proxy.features.status.models import STATUS_PATH, Status
from doi_proxy.features.status.page import add_status
from doi_proxy.features.status.prefixes import PrefixCounts
from doi_proxy.features.status.reader import StatusReader
from doi_proxy.features.status.readiness import describe_readiness
from doi_proxy.features.status.samples import sample_status
from doi_proxy.features.status.settings import StatusSettings
from doi_proxy.features.status.upstream_states import UpstreamStates
from doi_proxy.networks.network_list import EVERYONE, NetworkList
from doi_proxy.sharing.states import SharedStates
from doi_proxy.web.client_network import client_of
from doi_proxy.web.operations import Face

#: The privacy level from which prefixes are not counted.
_NO_PREFIXES: Final = 3


class HistoryService(Service):
    """Records the history and the events, and keeps them in the store."""

    def __init__(self, reader: StatusReader, keeper: StatusKeeper, prefixes: PrefixCounts) -> None:
        self._reader = reader
        self._keeper = keeper
        self._prefixes = prefixes

    def tick(self) -> None:
        """Record a point, if it is due, and what has changed."""
        self._prefixes.refresh()
        self._reader.watch()
        self._reader.record()

    async def run(self) -> None:
        """Keep them."""
        await self._keeper.run(self._reader.finish)


def open_status(context: Context) -> Opened:
    """The routes: /healthz and /readyz for everyone, /status for those who may see it."""
    settings = context.settings.group(StatusSettings)
    history, events = SharedHistory(context.shared_file("history.json")), EventLog(context.shared_file("events.json"))
    upstreams = UpstreamStates(
        context.core.upstream.guards, SharedStates(context.reloads.memories.get("upstreams")), context.clock
    )
    reader = StatusReader(context, history, events, upstreams)
    is_shared = not context.facts.store_url.startswith(("memory:", "sqlite:"))
    listening = f"{context.settings.value('host')}:{context.settings.value('port')}"
    place = find_place(listening) if is_shared else ""
    keeper = StatusKeeper(context.core.cache, history, events, context.clock, place)
    context.record_event = reader.record_event
    context.reloads.on_reload(lambda _: reader.record_event("reload"))

    # The highest privacy level counts clients and names together nowhere.
    prefixes = PrefixCounts(client_of, context.clock, lambda: os.urandom(16), context.reloads.memories.get("prefixes"))
    service = HistoryService(reader, keeper, prefixes)
    shown = prefixes if context.facts.privacy_level < _NO_PREFIXES else None
    stages = () if shown is None else (shown,)

    def add_public(app: FastAPI, face: Face) -> None:
        add_health(app, lambda: describe_readiness(context, upstreams))

    networks = [ip_network(network) for network in settings.status_networks]
    is_public = set(networks) >= EVERYONE
    seeing = NetworkList(networks)
    # If every client may see the page, only those of listed networks see its prefixes.
    trusted = NetworkList(network for network in networks if network not in EVERYONE)

    async def read(address: str) -> Status | None:
        if not is_public and address not in seeing:
            return None
        return await reader.read(shown if address in trusted else None)

    def add(app: FastAPI, face: Face) -> None:
        add_status(app, read, face.pages, face.link)

    def add_for_operators(app: FastAPI, face: Face) -> None:
        add_status(app, lambda address: reader.read(shown), face.pages, face.link, is_described=False)

    path = STATUS_PATH.encode()
    return Opened(
        stages,
        services=(upstreams, service),
        routes=(add_public, add),
        private=(path,),
        operator_routes={path: add_for_operators},
    )


FEATURE: Final = Feature(
    "status",
    "/healthz and /readyz, and /status: what the service is doing, as a page and as JSON",
    needs=("metrics",),
    open=open_status,
    samples=sample_status,
)
