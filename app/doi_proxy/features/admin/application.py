"""The application of `admin_listen`: the admin API on an address of its own, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from doi_proxy.features.admin.gate import AdminGate
from doi_proxy.web.request import Fields, Request
from doi_proxy.web.responses import Receive, Scope, Send
from doi_proxy.web.stage import Answer, Stages

#: The route that its requests are counted and logged under.
_ROUTE: Final = "operation"


class AdminApplication:
    """An ASGI application behind the gate of the admin API. It has no prepared answers and no answer without a task."""

    prepared: None = None

    def __init__(self, gate: AdminGate, stages: Stages, *, timer: Callable[[], float], connections: object) -> None:
        self._gate = gate
        self.base = gate.base
        self._timer = timer
        self._stages = stages
        self._wrapped: Answer = self._respond
        # Its requests have no spans.
        for stage in stages.loggers:
            self._wrapped = stage.wrap(self._wrapped)
        #: The server's data about its connections, which both applications share.
        self.connections = connections

    def answer_now(self, scope: Scope, default_headers: bytes, fields: Fields | None) -> bytes | None:
        """No answer: every request takes a task."""
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive, public_url=None, sub_path=b"")
        await self._wrapped(request, _ROUTE, receive, send)

    async def _respond(self, request: Request, route: str, receive: Receive, send: Send) -> None:
        began = self._timer()
        # A path outside the admin API is behind the gate too, and gets 404 there.
        status = await self._gate.answer(request, {**request.scope, "path": request.path.decode("latin-1")}, send)
        if self._stages.count is not None:
            self._stages.count(route, request.method, status, self._timer() - began)
        if self._stages.count_client is not None:
            self._stages.count_client(request.client_address, 1)
