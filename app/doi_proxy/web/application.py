"""The ASGI application. It passes each request to the part that answers it.

The order is the same for every request: admit, the prepared answer, an answer from memory, one that waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from msgspec import structs

from doi_names.errors import EmptyName, NameTooLong
from doi_names.name import HandleName
from doi_names.presentation import MAX_TYPED_CHARACTERS, read_path, read_typed, url_path
from doi_proxy import errors
from doi_proxy.system.eager import Rest, begin
from doi_proxy.web import redirect, responses
from doi_proxy.web.api import HANDLES, PROTOCOL_ERROR
from doi_proxy.web.freshness import CACHE_CONTROL, OWN_PAGE, PREFLIGHT_MAX_AGE, VARY_PREFLIGHT
from doi_proxy.web.problem import error_problem
from doi_proxy.web.redirect import Face, Operations
from doi_proxy.web.request import (
    REQUEST_ID,
    Fields,
    Request,
    answer_identifier,
    echo_identifier,
    id_headers,
    sent_identifier,
)
from doi_proxy.web.request_path import (
    MAX_REQUEST_TARGET_BYTES,
    Parameters,
    Paths,
    api_part,
    client_of,
    find_route,
    header_lines,
    names_part,
    read_openurl,
    read_query,
)
from doi_proxy.web.responses import Reply
from doi_proxy.web.stage import Answer, Stages

#: The methods of names and records, in the form of `Allow`.
ALLOW: Final = "GET, HEAD, POST, OPTIONS"
#: A list of header names (RFC 9110, section 5.6.2).
_TOKENS: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]{1,1000}")


def answer_other_method(request: Request, route: str, allow: str | None, face: Face) -> Reply:
    """The answer to OPTIONS, and 405 to any other method. `allow` has the methods of a path of operation."""
    if request.method == "OPTIONS":
        return _answer_options(request, allow or ALLOW)
    headers = ((b"allow", ALLOW.encode()),)
    message = f"This resolver answers {ALLOW}; it changes no record, so it has no use for {request.method}."
    if route == "api":
        failed = face.api.answer_error(405, PROTOCOL_ERROR, message, Parameters())
        return structs.replace(failed, headers=(*failed.headers, *headers))
    return face.errors.answer_status(request, 405, message, headers)


def _answer_options(request: Request, allow: str) -> Reply:
    """OPTIONS, and the preflight of a browser (WHATWG Fetch, section 3.3.5): any site may read, without credentials.

    Caches may not store the answer (RFC 9110, section 9.3.7). A browser keeps a preflight by Access-Control-Max-Age.
    """
    headers = [(b"allow", allow.encode())]
    if request.header(b"access-control-request-method") is not None:
        wanted = request.header(b"access-control-request-headers")
        headers += [
            (b"access-control-allow-methods", allow.encode()),
            (b"access-control-allow-headers", wanted.encode() if wanted and _TOKENS.fullmatch(wanted) else b"*"),
            (b"access-control-max-age", PREFLIGHT_MAX_AGE),
            VARY_PREFLIGHT,
        ]
    return Reply(204, tuple(headers))


#: The member of the scope with an answer that the server has begun.
BEGUN = "doi_proxy.begun"


class Begun(NamedTuple):
    """What is left of an answer that waits, and when it began, in seconds of the timer."""

    rest: Rest
    began: float


class Preparation(Protocol):
    """The prepared answers, which a server tries before the application."""

    def offer(
        self,
        target: bytes,
        reply: responses.Reply,
        basis: responses.Basis | responses.FailureBasis,
        header: Callable[[bytes], str | None],
    ) -> None:
        """Prepare a reply to a plain request for `target`, the raw path and query. `header` reads a header of it."""

    def answer(self, request: bytes, default_headers: bytes, client_of: Callable[[bytes | None], str]) -> bytes | None:
        """The whole answer to one whole request, None if there is none."""


@dataclass(frozen=True, slots=True)
class OwnSite:
    """This service as clients and upstreams see it. `loop_id` is in the queries that it sends. `timer` is monotonic."""

    public_url: str | None
    sub_path: bytes
    loop_id: str
    timer: Callable[[], float]


class Application:
    """Answers names itself. FastAPI answers the other paths: documentation, health, static files."""

    def __init__(
        self,
        face: Face,
        operations: Operations,
        site: OwnSite,
        stages: Stages,
        prepared: Preparation | None,
        connections: object,
    ) -> None:
        self._face = face
        self._operations = operations
        self._paths = operations.paths
        #: What a text in the form can be: any path except one of operation.
        self._typed_paths = Paths(own_api=operations.paths.own_api)
        self._site = site
        self._timer = site.timer
        self._stages = stages
        self._admission, self._encoder = stages.admission, stages.encoder
        self._own_routes = frozenset(operations.paths.own_api.values())
        self._wrapped: Answer = self._respond
        for wrap in reversed(stages.wrap):
            self._wrapped = wrap(self._wrapped)
        #: The applications of further listeners, by the setting with their address.
        self.listeners: Mapping[str, object] = {}
        #: The server's data about its connections. The application does not use it.
        self.connections = connections
        #: The path of this resolver without a slash at its end, for the links of what a server refuses.
        self.base = face.link.base
        #: The prepared answers, which a server tries before this application. None if they are switched off.
        self.prepared = prepared

    def begin(
        self, scope: responses.Scope, default_headers: bytes, fields: Fields | None = None
    ) -> bytes | Begun | None:
        """The whole answer about a name, if it waits for nothing; else what is left of it, for `BEGUN` in the scope.

        None if it takes a task from the beginning. `default_headers` are the lines that the server puts first, `fields`
        the request's headers, if it has read them.
        """
        method = scope["method"]
        if method not in ("GET", "HEAD") or self._stages.takes_task:
            return None
        began = self._timer()
        request = Request(scope, _no_body, self._site.public_url, self._site.sub_path, fields)
        route = find_route(method, request.path, self._paths)
        if route not in ("resolve", "api"):
            return None
        reply = begin(self._reply(request, route))
        if isinstance(reply, Rest):
            return Begun(reply, began)
        seconds = self._timer() - began
        self._count(request, route, reply.status, seconds)
        last = b""
        if self._stages.log_now is not None:
            last = self._stages.log_now(request, route, reply, seconds)
        elif request.header(REQUEST_ID) is not None:
            identifier = answer_identifier(request, sent_identifier(request), (*reply.headers, *reply.freshness))
            last = header_lines(id_headers(identifier))
        return responses.write_reply(reply, default_headers, last, head_only=method == "HEAD")

    def _refuse(self, request: Request, route: str) -> responses.Reply | None:
        """The refusal of a client that may not have an answer, None if it is admitted."""
        if self._admission.admits_all or route == "operation":
            return None
        try:
            self._admission.admit(request.client_address)
        except errors.DoiProxyError as error:
            return self._show_refusal(request, route, error)
        return None

    def _show_refusal(self, request: Request, route: str, error: errors.DoiProxyError) -> responses.Reply:
        if route in self._own_routes:
            return error_problem(error, base=self._face.link.base)
        if route == "api" and isinstance(error, errors.TooManyRequests):
            return self._face.api.answer_limit(error, Parameters())
        if route == "api":
            return self._face.api.answer_error(error.status, PROTOCOL_ERROR, error.message, Parameters())
        return self._face.errors.answer(request, error, name=None, typed=_path_text(request))

    async def __call__(self, scope: responses.Scope, receive: responses.Receive, send: responses.Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._operations.app(scope, receive, send)
            return
        request = Request(scope, receive, self._site.public_url, self._site.sub_path)
        route = find_route(request.method, request.path, self._paths)
        if self._stages.log_now is None and request.header(REQUEST_ID) is not None:
            send = echo_identifier(request, send)
        await self._wrapped(request, route, receive, send)

    async def _respond(self, request: Request, route: str, receive: responses.Receive, send: responses.Send) -> None:
        begun: Begun | None = request.scope.pop(BEGUN, None)
        began = self._timer() if begun is None else begun.began
        if route == "operation":
            status = await self._operations.answer(request, receive, send, self._encoder)
        elif route in self._own_routes and request.method != "OPTIONS":
            status = await self._answer_own_api(request, route, receive, send)
        else:
            reply = await (self._reply(request, route) if begun is None else begun.rest.finish())
            status = reply.status
            await responses.send_reply(reply, send, head_only=request.head_only)
        self._count(request, route, status, self._timer() - began)

    def _count(self, request: Request, route: str, status: int, seconds: float) -> None:
        stages, address = self._stages, request.client_address
        if stages.count is not None:
            stages.count(route, request.method, status, seconds)
        if stages.count_client is not None:
            stages.count_client(address, 1)

    def _offer(self, request: Request, reply: responses.Reply) -> None:
        """Let a reply be prepared that depends only on records, and on what selects it."""
        basis = reply.basis
        if (
            self.prepared is None
            or basis is None
            or request.method == "POST"
            or request.header(CACHE_CONTROL) is not None
        ):
            return
        # A client of HTTP/1.0 gets other statuses.
        if request.scope["http_version"] != "1.0":
            query = request.query
            target: bytes = request.scope["raw_path"]
            self.prepared.offer(target + b"?" + query if query else target, reply, basis, request.header)

    async def _answer_own_api(
        self, request: Request, route: str, receive: responses.Receive, send: responses.Send
    ) -> int:
        """Let FastAPI answer, unless a limit forbids it. Returns the status."""
        refusal = self._refuse(request, route)
        if len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
            message = f"The address is longer than {MAX_REQUEST_TARGET_BYTES} bytes; send the texts by POST."
            refusal = refusal or error_problem(errors.as_failure(NameTooLong(message)), base=self._face.link.base)
        if refusal is None:
            return await self._operations.answer(request, receive, send, self._encoder)
        await responses.send_reply(refusal, send, head_only=request.head_only)
        return refusal.status

    async def _reply(self, request: Request, route: str) -> responses.Reply:
        """The answer about a name as its client gets it."""
        reply = await self._answer(request, route)
        # Most answers are too small to be encoded.
        if len(reply.body) >= self._encoder.encodes_from or reply.status == responses.NOT_MODIFIED:
            reply = await self._encoder.encode(request, self._encoder.prepare(reply))
        self._offer(request, reply)
        return reply

    async def _answer(self, request: Request, route: str) -> responses.Reply:
        try:
            refusal = self._refuse(request, route)
            if refusal is not None:
                return refusal
            if request.method not in ("GET", "HEAD", "POST"):
                return answer_other_method(request, route, self._operations.allow_of(request.path), self._face)
            if len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
                raise NameTooLong(f"The address is longer than {MAX_REQUEST_TARGET_BYTES} bytes.")
            # RFC 8586, section 2. The answer would wait for the query that waits for the answer.
            if self._site.loop_id in (request.header(b"cdn-loop") or "") and not self._is_known(request, route):
                raise errors.RequestLoop
            parameters = read_query(request.query, semicolons=route != "api")
            if request.method == "POST":
                return await self._answer_form(request, route, parameters)
            return await self._dispatch(request, route, request.path, parameters)
        except asyncio.CancelledError:
            raise
        except errors.FAILURES as error:
            return self._show_refusal(request, route, errors.as_failure(error))
        except Exception as error:  # every error becomes a page, which logs it
            return self._face.errors.answer(request, error, name=None, typed=_path_text(request))

    async def _answer_form(self, request: Request, route: str, parameters: Parameters) -> responses.Reply:
        form = await request.form()
        parameters += form
        typed = form.first("hdl") if route == "resolve" and _is_of_name(request.path) else None
        if typed is None:
            return await self._dispatch(request, route, request.path, parameters)
        if len(typed) > MAX_TYPED_CHARACTERS:
            raise errors.RequestTooLarge(
                f"The form takes {MAX_TYPED_CHARACTERS} characters; request a long name by its path."
            )
        path = b"/" + typed.strip().encode("utf-8", "replace")
        return await self._dispatch(
            request, find_route(request.method, path, self._typed_paths), path, parameters, typed
        )

    def _is_known(self, request: Request, route: str) -> bool:
        """Whether memory has the record that a request is about. Raises InvalidName."""
        path = api_part(request.path)[len(HANDLES) - 1 :] if route == "api" else request.path
        return self._face.resolver.resolve_now(read_path(path)) is not None

    async def _dispatch(
        self, request: Request, route: str, path: bytes, parameters: Parameters, typed: str | None = None
    ) -> responses.Reply:
        if route == "api":
            return await self._face.api.answer(request, api_part(path), parameters)
        if route == "which_ra":
            client = client_of(request.client_address)
            return await redirect.answer(request, names_part(path), client, self._face)
        if route == "home":
            return self._home(request)
        if route == "openurl":
            return await self._answer_openurl(request, parameters)
        name: HandleName | None = None
        try:
            name = read_path(path) if typed is None else read_typed(typed)
            reply = await self._face.redirects.answer(request, name, parameters)
        except EmptyName:
            return self._home(request)
        except errors.FAILURES as error:
            reply = self._face.errors.answer(request, error, name=name, typed=typed or _path_text(request))
        if typed is not None and request.method == "POST":
            return await self._answer_text(request, parameters, typed, reply)
        return reply

    async def _answer_openurl(self, request: Request, parameters: Parameters) -> responses.Reply:
        """Answer the first reading of an OpenURL that is registered, else the likeliest one."""
        try:
            # Not every sender of an OpenURL escapes the ";" of a DOI name.
            typed, *others = read_openurl(read_query(request.query, semicolons=False) + parameters)
        except errors.NoDOIInOpenURL as error:
            return self._face.errors.answer(request, error, name=None, typed=_path_text(request))
        reply = await self._answer_name(request, parameters, typed)
        for other in others if reply.status in (400, 404) else ():
            second = await self._answer_name(request, parameters, other)
            # It depends on the first reading too, which may be registered later.
            reply = reply if second.status in (400, 404) else structs.replace(second, basis=None)
        return reply

    async def _answer_name(self, request: Request, parameters: Parameters, typed: str) -> responses.Reply:
        """The redirect of a name that was typed, or the page that says why there is none."""
        name: HandleName | None = None
        try:
            name = read_typed(typed)
            return await self._face.redirects.answer(request, name, parameters)
        except errors.FAILURES as error:
            return self._face.errors.answer(request, error, name=name, typed=typed)

    async def _answer_text(
        self, request: Request, parameters: Parameters, typed: str, reply: responses.Reply
    ) -> responses.Reply:
        """The page about the names in a text of the form that has this `reply` as it stands, as a name."""
        is_prose = len(typed.split()) > 1
        if reply.status not in ((400, 404, 502, 503, 504) if is_prose else (400, 404)):
            return reply
        names = await self._face.errors.find_in_text(request, typed)
        if len(names) == 1:
            answer = await self._dispatch(request, "resolve", b"/" + url_path(names[0]).encode(), parameters)
            if answer.status >= 400:
                return answer if is_prose or (reply.status == 400 and names[0].text in typed[1:]) else reply
        return self._face.errors.show_found(request, names, typed) if names else reply

    def _home(self, request: Request) -> responses.Reply:
        language = request.language(self._face.pages.languages)
        return responses.page(200, self._face.pages.home(self._face.link, language), freshness=(OWN_PAGE,))


async def _no_body() -> responses.Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def _is_of_name(path: bytes) -> bool:
    """Whether a path is that of the form or of a name, whose naming authority begins with a number."""
    try:
        return read_path(path).text[0].isdecimal()
    except EmptyName:
        return True
    except errors.FAILURES:
        return False


def _path_text(request: Request) -> str:
    return request.path[1:201].decode("latin-1")
