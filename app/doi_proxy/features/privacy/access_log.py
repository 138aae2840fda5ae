"""The access log: one line for each request."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from doi_proxy.features.privacy.line import MAX_PATH, NO_CLIENTS, LogLine
from doi_proxy.web.freshness import cache_status_text
from doi_proxy.web.header import header_lines
from doi_proxy.web.request import Request
from doi_proxy.web.request_id import answer_identifier, id_headers, sent_identifier
from doi_proxy.web.responses import Message, Receive, Reply, Send
from doi_proxy.web.stage import Answer, PreparedRequest, Stage

#: Bytes of a path or a query that a line keeps: one more than it shows, and so it marks a text that was cut.
_MAX_BYTES: Final = MAX_PATH + 1
#: The lines around a request ID in the headers of an answer.
_BEFORE_ID, _AFTER_ID = header_lines(id_headers("\0")).split(b"\0")


class AccessLog(Stage):
    """Writes the log. `clock` is in seconds since the epoch, `timer` monotonic; `new_id` returns a new request ID."""

    def __init__(
        self,
        *,
        privacy_level: int,
        clock: Callable[[], float],
        timer: Callable[[], float],
        new_id: Callable[[], str],
        write: Callable[[LogLine], object],
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._new_id = new_id
        self._write = write
        self.shows_clients = privacy_level < NO_CLIENTS

    def wrap(self, answer: Answer) -> Answer:
        """Add the request ID to each answer, and log it after its last byte."""

        async def answer_logged(request: Request, route: str, receive: Receive, send: Send) -> None:
            await answer(request, route, receive, self.watch(request, route, send))

        return answer_logged

    def watch(self, request: Request, route: str, send: Send) -> Send:
        """Wrap `send`: it adds the request ID to the answer, and logs the answer after its last byte."""
        line = self._begin(request, route)
        began = self._timer()

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                line.status, line.cache = message["status"], cache_status_text(headers)
                identifier = answer_identifier(request, line.request_id, headers)
                message = {**message, "headers": [*headers, *id_headers(identifier)]}
            else:
                line.bytes += len(message.get("body", b""))
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                line.seconds = self._timer() - began
                self._write(line)

        return send_logged

    def log_now(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns its request-ID header lines."""
        line = self._begin(request, route)
        line.status, line.cache, line.seconds = reply.status, cache_status_text(reply.freshness), seconds
        line.bytes = 0 if request.head_only else len(reply.body)
        self._write(line)
        return _id_lines(answer_identifier(request, line.request_id, (*reply.headers, *reply.freshness)))

    def log_prepared(self, answered: PreparedRequest, client: str, seconds: float) -> bytes:
        """Log a prepared answer. Its request has no ID, so it gets a new one."""
        identifier = self._new_id()
        line = LogLine(
            self._clock(),
            identifier,
            client,
            answered.method,
            answered.path[:_MAX_BYTES],
            answered.query[:_MAX_BYTES],
            answered.route,
            answered.status,
            answered.size,
            seconds,
            answered.cache_status,
        )
        self._write(line)
        return _id_lines(identifier)

    def _begin(self, request: Request, route: str) -> LogLine:
        return LogLine(
            moment=self._clock(),
            request_id=sent_identifier(request) or self._new_id(),
            client=request.client_address if self.shows_clients else "",
            method=request.method,
            path=request.path[:_MAX_BYTES],
            query=request.query[:_MAX_BYTES],
            route=route,
        )


def _id_lines(identifier: str | None) -> bytes:
    return b"" if identifier is None else b"".join((_BEFORE_ID, identifier.encode(), _AFTER_ID))


def new_access_log(privacy_level: int, clock: Callable[[], float], write: Callable[[LogLine], object]) -> AccessLog:
    """A log whose request IDs are random."""
    random_bits = Random().getrandbits  # noqa: S311 - a request ID is not a secret
    return AccessLog(
        privacy_level=privacy_level,
        clock=clock,
        timer=time.perf_counter,
        new_id=lambda: random_bits(64).to_bytes(8).hex(),
        write=write,
    )
