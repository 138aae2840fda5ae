"""The HTTP tunnel: a message as the body of a POST, and its answer as that of the response. An ASGI application."""

from __future__ import annotations

from typing import Any, Final

from doi_proxy.features.native_listener.messages import MAX_REQUEST_BYTES, read_request, write_unreadable
from doi_proxy.features.native_listener.responder import Peer, Responder
from doi_proxy.web.request import Fields
from doi_proxy.web.responses import Receive, Scope, Send
from handle_protocol.errors import MalformedMessage
from handle_protocol.transport.tunnel import MESSAGE

_TEXT: Final = b"text/plain; charset=utf-8"
_METHOD: Final = b"This port speaks the native Handle protocol; send a message by POST.\n"
_TYPE: Final = b"The Content-Type of a message is application/x-hdl-message.\n"
_TOO_LARGE: Final = b"The message is too large.\n"


class Tunnel:
    """Answers messages by HTTP. `connections` are the server's; see doi_proxy.server.application."""

    #: A tunnel has no prepared answers.
    prepared: None = None
    #: The pages of this resolver are not at this port.
    base: Final = ""

    def __init__(self, responder: Responder, connections: object) -> None:
        self._responder = responder
        self.connections = connections

    def answer_now(self, scope: Any, default_headers: bytes, fields: Fields | None) -> bytes | None:
        """A message has a body, so it takes a task."""
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        kinds = [value for name, value in scope["headers"] if name == b"content-type"]
        kind = kinds[0].partition(b";")[0].strip().lower() if kinds else b""
        if scope["method"] != "POST":
            await _send(send, 405, _TEXT, _METHOD, (b"allow", b"POST"))
        elif kind != MESSAGE.encode():
            await _send(send, 415, _TEXT, _TYPE)
        elif (data := await _read(receive)) is None:
            await _send(send, 413, _TEXT, _TOO_LARGE)
        else:
            await _send(send, 200, kind, await self._answer(data, scope))

    async def _answer(self, data: bytes, scope: Scope) -> bytes:
        (client, _), (host, port) = scope["client"] or ("", 0), scope["server"]
        try:
            request = read_request(data)
        except MalformedMessage:
            return write_unreadable()
        peer = Peer(client, host, port)
        return self._responder.answer_now(request, peer) or await self._responder.answer(request, peer)


async def _read(receive: Receive) -> bytes | None:
    """The body of a request, None if it is too large. It is empty if the client is gone."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_REQUEST_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def _send(send: Send, status: int, kind: bytes, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
