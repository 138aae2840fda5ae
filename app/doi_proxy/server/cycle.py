"""Two adapters between uvicorn's request cycle and its connection: paused reading, and requests with a body."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class ReadingFlow(FlowControl):
    """Flow control with a hold: while the protocol holds reading, the application cannot resume it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        # Without super(), which makes an Event for each connection, although few have to wait for their client.
        self._transport = transport
        self.read_paused = self.write_paused = self._is_held = False

    @cached_property
    def _is_writable_event(self) -> asyncio.Event:  # type: ignore[override]
        (event := asyncio.Event()).set()
        return event

    def hold(self) -> None:
        """Stop reading until `release`."""
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading."""
        if self._is_held:
            self._is_held = False
            self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless the protocol holds it."""
        if not self._is_held:
            super().resume_reading()


def keep_alive_after_body(cycle: RequestResponseCycle, app: Any) -> Any:
    """Wrap `app`: its answer closes the connection, unless the application has read the whole body before it answers.

    The unread bytes of a body could be parsed as the next request (RFC 9112, section 9.3).
    """
    keep_alive, cycle.keep_alive = cycle.keep_alive, False

    async def run(scope: Any, receive: Any, send: Any) -> None:
        async def receive_body() -> Any:
            message = await receive()
            if message["type"] == "http.request" and not message["more_body"] and not cycle.response_started:
                cycle.keep_alive = keep_alive
            return message

        await app(scope, receive_body, send)

    return run
