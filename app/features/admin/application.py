"""The application of `admin_listen`: the admin API on an address of its own, and nothing else."""

from __future__ import annotations

from typing import Final

from app.features.access_log.access_log import AccessLog
from app.features.admin.gate import AdminGate
from app.features.metrics.requests import HttpMetrics
from app.web.request import Request
from app.web.responses import Receive, Scope, Send

#: The route that its requests are counted and logged under.
_ROUTE: Final = "operation"


class AdminApplication:
    """An ASGI application behind the gate of the admin API. It has no express lane and no answer without a task."""

    express: None = None

    def __init__(
        self, gate: AdminGate, *, http_metrics: HttpMetrics, access_log: AccessLog | None, connections: object
    ) -> None:
        self._gate = gate
        self._metrics = http_metrics
        self._access_log = access_log
        #: The server's data about its connections, which both applications share.
        self.connections = connections

    def answer_now(self, scope: Scope, default_headers: bytes) -> bytes | None:
        """No answer: every request takes a task."""
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive, public_url=None, sub_path=b"")
        if self._access_log is not None:
            send = self._access_log.watch(request, _ROUTE, send)
        began = self._metrics.timer()
        # A path outside the admin API is behind the gate too, and gets 404 there.
        status = await self._gate.answer(request, {**scope, "path": request.path.decode("latin-1")}, send)
        self._metrics.record_answer(_ROUTE, request.method, status, self._metrics.timer() - began)
