"""/healthz, /readyz and /status: what the service is doing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from doi_proxy.features import feature
from doi_proxy.system.check import Service
from doi_proxy.system.options import SettingsGroup, TextList, require_networks

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

    from doi_proxy.features.status.clients import ClientCounts
    from doi_proxy.features.status.models import Status
    from doi_proxy.features.status.reader import StatusReader
    from doi_proxy.web.redirect import Face


class StatusSettings(SettingsGroup):
    """The status page."""

    tables = ("status",)

    status_networks: TextList = Field(
        ("127.0.0.0/8", "::1"),
        description="Networks whose clients see `/status`; `0.0.0.0/0, ::/0` is everyone. A request with "
        "`admin_token` sees it from everywhere, also with an empty list. A front proxy on this "
        "machine must send X-Forwarded-For, or all of its clients count as this machine. Add the "
        "network of the operators if they look at it from their own machines.",
    )

    @field_validator("status_networks")
    @classmethod
    def _check_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        require_networks(value)
        return value


class StatusPages(feature.Feature, Service):
    """/healthz and /readyz for everyone, /status for those who may see it; the history and the events behind it."""

    name = "status"
    summary = "/healthz and /readyz, and /status: what the service is doing, as a page and as JSON"
    needs = ("metrics",)
    settings = StatusSettings

    _reader: StatusReader
    _clients: ClientCounts

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Count clients, and record the history and the events."""
        from doi_proxy.features.metrics.feature import Metrics
        from doi_proxy.features.status.clients import ClientCounts
        from doi_proxy.features.status.reader import StatusReader
        from doi_proxy.web.request_path import client_of

        context = self.context
        self._clients = ClientCounts(client_of, context.clock)
        self._reader = StatusReader(context, core, others[Metrics], self._clients)
        return self._clients, self

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the routes, that of /status also behind the gates of operators."""
        from doi_proxy.endpoints import OperatorPath
        from doi_proxy.features.status.models import STATUS_PATH
        from doi_proxy.features.status.page import add_health, add_status

        self._reader.watcher.services = opened.services
        add_health(app, self._reader.describe_readiness)
        settings = self.context.settings
        path = OperatorPath(face, STATUS_PATH, settings.group(StatusSettings).status_networks, settings.public_url)

        async def read(request: Request) -> Status | None:
            return await self._reader.read() if path.is_seen(request) else None

        add_status(app, read, face.pages, face.link)
        for gate in opened.gates:
            gate.add_path(STATUS_PATH.encode())
            add_status(gate.app, lambda _: self._reader.read(), face.pages, face.link, is_described=False)

    def tick(self, _late: float) -> None:
        """Count requests by client, and record a point, if it is due, and what has changed."""
        self._clients.refresh()
        self._reader.record()
