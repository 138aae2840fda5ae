"""The ASGI application. It passes each request to the part that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs
from starlette.types import ASGIApp

from app.doi.name import HandleName
from app.doi.presentation import read_path, read_typed
from app.errors import DoiProxyError, EmptyName, NameTooLong, RequestLoop, TooManyRequests
from app.features.access_log.access_log import REQUEST_ID, AccessLog, echo_identifier, id_headers, sent_identifier
from app.features.admin.application import AdminApplication
from app.features.admin.gate import ADMIN_PATH, AdminGate
from app.features.compression.compression import Compression
from app.features.library.preferences import Preferences
from app.features.limits.api_gate import refuse
from app.features.limits.counts import ClientCounts
from app.features.limits.limits import ClientLimits
from app.features.metrics.requests import HttpMetrics
from app.features.status.models import STATUS_PATH
from app.features.tracing.opening import TracedRequest, Traces
from app.resolver.which_ra import WhichRa
from app.server.prepared_answers import ExpressLane
from app.web import which_ra
from app.web.api import PROTOCOL_ERROR, RestApi
from app.web.error_handlers import ErrorPages
from app.web.freshness import CACHE_CONTROL, OWN_PAGE
from app.web.header import header_lines
from app.web.negotiation import wants_page
from app.web.openurl import read_openurl
from app.web.pages import Link, Pages
from app.web.preflight import ALLOW, answer_options
from app.web.redirect import Redirects
from app.web.request import Request
from app.web.request_path import MAX_REQUEST_TARGET_BYTES, Parameters, read_query
from app.web.responses import (
    COMMON_HEADERS,
    NO_CORS_HEADERS,
    Message,
    Receive,
    Reply,
    Scope,
    Send,
    page,
    send_reply,
    write_reply,
)
from app.web.route import OWN_API_ROUTES, Route, api_part, find_route, names_part


@dataclass(frozen=True, slots=True)
class Face:
    """The parts of the application."""

    redirects: Redirects
    which_ra: WhichRa
    api: RestApi
    errors: ErrorPages
    preferences: Preferences
    pages: Pages
    link: Link
    compression: Compression


class Application:
    """Answers names itself. FastAPI answers the other paths: documentation, health, static files."""

    def __init__(
        self,
        face: Face,
        *,
        operations: ASGIApp,
        admin: AdminGate | None,
        other_paths: frozenset[bytes],
        allow_of: Callable[[bytes], str | None],
        limits: ClientLimits,
        public_url: str | None,
        sub_path: bytes,
        loop_id: str,
        express: ExpressLane | None,
        http_metrics: HttpMetrics,
        access_log: AccessLog | None,
        traces: Traces | None,
        connections: object,
        admin_application: AdminApplication | None,
        clients: ClientCounts,
    ) -> None:
        """`allow_of` returns the methods of a path that FastAPI answers, None for any other path."""
        self._face = face
        self._operations = operations
        self._admin = admin
        self._other_paths = other_paths
        self._allow_of = allow_of
        self._compression = face.compression
        self._limits = limits
        self._public_url = public_url
        self._sub_path = sub_path
        #: It is in the queries that this service sends to its upstreams.
        self._loop_id = loop_id
        self._metrics = http_metrics
        self._access_log = access_log
        self._traces = traces
        self._clients = clients
        #: The server's data about its connections. The application does not use it.
        self.connections = connections
        #: The application of the admin API's own listener. None if it has none.
        self.admin_application = admin_application
        #: The lane that a server tries before this application. None if it is switched off.
        self.express = express

    def answer_now(self, scope: Scope, default_headers: bytes) -> bytes | None:
        """The whole answer to a request that depends on what is in memory alone; None if it takes a task.

        For a server that calls this before it starts a task. `default_headers` are the lines that it puts first.
        """
        method = scope["method"]
        if method not in ("GET", "HEAD") or self._limits.is_active:
            return None
        began = self._metrics.timer()
        request = Request(scope, _no_body, public_url=self._public_url, sub_path=self._sub_path)
        route = find_route(method, request.path, self._other_paths)
        reply = self._try_now(request, route)
        if reply is None:
            return None
        seconds = self._metrics.timer() - began
        self._metrics.record_answer(route, method, reply.status, seconds)
        self._clients.count(request.client_address)
        # Most answers are small, and most requests have no identifier.
        concerns_compression = self._compression.concerns(reply)
        if concerns_compression:
            reply = self._compression.prepare(reply)
        self._offer(request, reply)
        if concerns_compression:
            reply = self._compression.encode_now(request, reply)
        last = b""
        if self._access_log is not None:
            last = self._access_log.log_reply(request, route, reply, seconds)
        elif request.header(REQUEST_ID) is not None:
            last = header_lines(id_headers(sent_identifier(request)))
        return write_reply(reply, default_headers, last, head_only=method == "HEAD")

    def _try_now(self, request: Request, route: Route, *, can_wait: bool = False) -> Reply | None:
        """The reply, if it depends on what is in memory alone. The order of trying is this first, then awaiting.

        A caller that can wait may have to compress it in a thread.
        """
        if request.header(CACHE_CONTROL) is not None:
            return None  # the record in memory may be older than the client accepts
        if request.method == "POST" or len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
            return None
        try:
            if route == "resolve" and not (self._admin is not None and request.path.startswith(ADMIN_PATH)):
                name = read_path(request.path)
                return self._face.redirects.answer_now(request, name, read_query(request.query))
            if route == "api":
                return self._face.api.answer_now(
                    request, api_part(request.path), read_query(request.query), can_wait=can_wait
                )
        except DoiProxyError:
            return None  # awaiting meets the same error, and answers it
        except Exception as error:
            self._face.errors.log_fault(error)
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._operations(scope, receive, send)
            return
        request = Request(scope, receive, public_url=self._public_url, sub_path=self._sub_path)
        route = find_route(request.method, request.path, self._other_paths)
        self._clients.count(request.client_address)
        # None of its paths is a DOI, so `answer_now` leaves them to this method.
        is_admin = self._admin is not None and self._admin.answers(request.path)
        route = "operation" if is_admin else route
        log = self._access_log
        send = echo_identifier(request, send) if log is None else log.watch(request, route, send)
        if self._traces is None or route == "operation":
            await self._respond(request, route, receive, send, is_admin=is_admin)
            return
        peer = scope.get("doi_proxy.peer", "")
        traced = TracedRequest(route, request.method, peer, request.header(b"traceparent"))
        with self._traces.trace_request(traced, send) as watched:
            await self._respond(request, route, receive, watched, is_admin=is_admin)

    async def _respond(self, request: Request, route: Route, receive: Receive, send: Send, *, is_admin: bool) -> None:
        began = self._metrics.timer()
        if is_admin and self._admin is not None:
            status = await self._admin.answer(request, self._operations_scope(request), send)
        elif route == "operation":
            status = await self._operate(request, receive, send)
        elif route in OWN_API_ROUTES and request.method != "OPTIONS":
            status = await self._answer_own_api(request, receive, send)
        else:
            reply = self._compression.prepare(await self._answer(request, route))
            self._offer(request, reply)
            reply = await self._compression.encode(request, reply)
            status = reply.status
            await send_reply(reply, send, head_only=request.head_only)
        self._metrics.record_answer(route, request.method, status, self._metrics.timer() - began)

    def _offer(self, request: Request, reply: Reply) -> None:
        """Offer the express lane a reply that depends only on the path and one fresh record."""
        if self.express is not None and reply.hit is not None and request.is_plain and not self._limits.is_active:
            self.express.offer(request.scope["raw_path"], reply, reply.hit)

    async def _operate(self, request: Request, receive: Receive, send: Send) -> int:
        """Let FastAPI answer, with the headers of every answer added. Returns the status."""
        status = 500

        async def wrapped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                common = NO_CORS_HEADERS if request.path == STATUS_PATH.encode() else COMMON_HEADERS
                message["headers"] = [*message.get("headers", ()), *common]
            elif request.head_only:
                message["body"] = b""
            await send(message)

        await self._operations(self._operations_scope(request), receive, self._compression.wrap(request, wrapped))
        return status

    async def _answer_own_api(self, request: Request, receive: Receive, send: Send) -> int:
        """Let FastAPI answer, unless a limit forbids it. Returns the status."""
        refusal = refuse(request, self._limits, self._face.link.base)
        if refusal is None:
            return await self._operate(request, receive, send)
        await send_reply(refusal, send, head_only=request.head_only)
        return refusal.status

    def _operations_scope(self, request: Request) -> Scope:
        return {**request.scope, "path": request.path.decode("latin-1"), "raw_path": request.path, "root_path": ""}

    async def _answer(self, request: Request, route: Route) -> Reply:
        try:
            if self._limits.is_active:
                self._limits.admit(request)
            if request.method not in ("GET", "HEAD", "POST"):
                return self._other_method(request, route)
            if len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
                raise NameTooLong(f"The address is longer than {MAX_REQUEST_TARGET_BYTES} bytes.")
            return self._try_now(request, route, can_wait=True) or await self._await_answer(request, route)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # every error becomes a page; error_handlers logs what is not a DoiProxyError
            if route == "api" and isinstance(error, TooManyRequests):
                return self._face.api.answer_limit(error, Parameters())
            if route == "api" and isinstance(error, DoiProxyError):
                return self._face.api.answer_error(error.status, PROTOCOL_ERROR, error.message, Parameters())
            return self._face.errors.answer(request, error, name=None, typed=_path_text(request))

    async def _await_answer(self, request: Request, route: Route) -> Reply:
        # RFC 8586, section 2. The answer would wait for the query that waits for the answer.
        if self._loop_id in (request.header(b"cdn-loop") or ""):
            raise RequestLoop
        parameters = await request.parameters()
        typed = parameters.first("hdl") if request.method == "POST" else None
        if typed is None:
            return await self._dispatch(request, route, request.path, parameters)
        # The text of the form can be any path except a path of operation.
        path = b"/" + typed.strip().encode("utf-8", "replace")
        return await self._dispatch(request, find_route(request.method, path), path, parameters, typed)

    async def _dispatch(
        self, request: Request, route: Route, path: bytes, parameters: Parameters, typed: str | None = None
    ) -> Reply:
        if route == "api":
            return await self._face.api.answer(request, api_part(path), parameters)
        if route == "which_ra":
            return await self._answer_which_ra(request, names_part(path))
        if route == "home":
            return self._home(request)
        name: HandleName | None = None
        try:
            if route == "openurl":
                # Not every sender of an OpenURL escapes the ";" of a DOI name.
                typed = read_openurl(read_query(request.query, semicolons=False) + parameters)
            name = read_path(path) if typed is None else read_typed(typed)
            return await self._face.redirects.answer(request, name, parameters)
        except EmptyName:
            return self._home(request)
        except DoiProxyError as error:
            return self._face.errors.answer(request, error, name=name, typed=typed or _path_text(request))

    async def _answer_which_ra(self, request: Request, names: bytes) -> Reply:
        face, client = self._face, self._limits.client_of(request)
        if wants_page(request.header(b"accept")):
            return await which_ra.answer_page(face.which_ra, names, client, request, face.pages, face.link)
        return await which_ra.answer(face.which_ra, names, client)

    def _home(self, request: Request) -> Reply:
        language = request.language(self._face.pages.languages)
        return page(200, self._face.pages.home(self._face.link, language), freshness=(OWN_PAGE,))

    def _other_method(self, request: Request, route: Route) -> Reply:
        if request.method == "OPTIONS":
            return answer_options(request, self._allow_of(request.path) or ALLOW)
        allow = ((b"allow", ALLOW.encode()),)
        message = f"This resolver answers {ALLOW}; it changes no record, so it has no use for {request.method}."
        if route == "api":
            failed = self._face.api.answer_error(405, 4, message, Parameters())
            return structs.replace(failed, headers=(*failed.headers, *allow))
        return self._face.errors.answer_status(request, 405, message, allow)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _path_text(request: Request) -> str:
    return request.path[1:201].decode("latin-1")
