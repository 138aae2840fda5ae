"""What the endpoints of features have in common: paths for operators, their log, routes built when needed, errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from difflib import get_close_matches
from ipaddress import ip_network
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path, get_name

from doi_names.errors import InvalidName
from doi_names.repair.exploration import Confidence
from doi_proxy.errors import DoiProxyError, InvalidParameter, as_failure
from doi_proxy.networks import EVERYONE, NetworkList
from doi_proxy.system.invalid_values import explain_value
from doi_proxy.web.freshness import NO_STORE, VARY_LANGUAGE
from doi_proxy.web.languages import choose_language
from doi_proxy.web.media_types import PROBLEM
from doi_proxy.web.pages import Pages
from doi_proxy.web.problem import error_problem, problem
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import Request as WebRequest
from doi_proxy.web.request_path import Header, read_address
from doi_proxy.web.responses import HTML, PAGE_POLICY, Reply, Scope, Send


def list_parameters(dependant: Dependant) -> frozenset[str]:
    """The query parameters of an endpoint."""
    names = set[str]()
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names |= model.model_fields.keys()
        else:
            names.add(field.alias)
    return frozenset(names)


def refuse_slips(sent: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidParameter for the first parameter that looks like a known one. Any other is ignored."""
    unknown = (name for name in sent if name not in known and len(name) <= 20)
    # Unknown parameters of a request that are compared. Each is compared with all known ones in 0.04 ms.
    for name in islice(unknown, 16):
        # `sugest` and `suggest` have a similarity of 0.92, `fromat` and `format` 0.83, `utm_source` and `output` 0.38.
        similar = get_close_matches(name.lower(), known, n=1, cutoff=0.75)
        if similar:
            raise InvalidParameter(f"{name}: this parameter is not known. Did you mean {similar[0]}?")


#: The member of the ASGI scope with the client's network.
CLIENT: Final = "doi_proxy.client"
log = logging.getLogger(__name__)


class OperatorPath:
    """A path for operators: no page of another site may read it, and clients of some networks see it.

    They have to name this service in `Host`: a page of a site whose name leads to this machine for a moment is not an
    operator (DNS rebinding).
    """

    def __init__(self, face: Face, path: str, networks: Sequence[str], public_url: str | None) -> None:
        """`networks` are in CIDR notation."""
        face.private.add(path.encode())
        self._public_host = urlsplit(public_url or "").hostname
        listed = [ip_network(network) for network in networks]
        self._is_public, self._seeing = EVERYONE.issubset(listed), NetworkList(listed)

    def is_seen(self, request: Request) -> bool:
        """Whether the client of a request sees the path."""
        if self._is_public:
            return True
        return (
            request.client is not None and request.client.host in self._seeing and self._is_named(request.url.hostname)
        )

    def _is_named(self, host: str | None) -> bool:
        """Whether a host is an address, the host of this service, or a name without a dot, as no other site has one."""
        return not host or "." not in host or host == self._public_host or read_address(host) is not None


class OperatorGate:
    """The gate before an application of FastAPI for operators. See Gate."""

    #: The application behind the gate.
    app: FastAPI
    #: Whether the gate is on an address of its own, and not on that of the service.
    has_listener: bool
    below: tuple[bytes, ...]

    def add_path(self, path: bytes) -> None:
        """Answer another path, if a request has a token."""
        raise NotImplementedError

    def answers(self, request: WebRequest) -> bool:
        """See Gate."""
        raise NotImplementedError

    async def answer(self, request: WebRequest, scope: Scope, send: Send) -> int:
        """See Gate."""
        raise NotImplementedError


def audit(request: Request, action: str, what: dict[str, Any], result: str) -> None:
    """Log an action of an operator."""
    # JSON escapes line breaks, so one action is one line.
    client = request.scope.get(CLIENT, "")
    log.warning("admin: client %s, %s %s: %s", client, action, json.dumps(what), json.dumps(result)[1:-1])


def language_of(request: Request, pages: Pages) -> str:
    """The language of a page for a request."""
    return choose_language(request.headers.get("accept-language"), pages.languages)


def text_headers(*headers: Header) -> dict[str, str]:
    """Headers as Starlette takes them."""
    return {name.decode("ascii"): value.decode("ascii") for name, value in headers}


def own_page(body: bytes, freshness: Header, status: int = 200) -> Response:
    """A page that is not about a name."""
    headers = text_headers(HTML, *PAGE_POLICY, VARY_LANGUAGE, freshness)
    return Response(body, headers=headers, status_code=status)


def no_file(face: Face, request: Request) -> Response:
    """The page of a path at which there is nothing."""
    language = language_of(request, face.pages)
    return own_page(face.pages.error(face.link, language, title_key="error_no_file"), NO_STORE, 404)


def problem_responses(texts: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """The problems of a route by their status, for the OpenAPI document."""
    return {status: {"description": text, "content": {PROBLEM: {}}} for status, text in texts.items()}


class SuggestionModel(BaseModel):
    """A name that the writer may have meant."""

    doi: str = Field(examples=["10.1000/182"])
    rule: str = Field(description="The repair that led to it.", examples=["trailing-punctuation"])
    exists: bool | None = Field(None, description="In a row of a list: whether it exists. Null if this is not known.")


class ReadingModel(BaseModel):
    """The likeliest reading of a text."""

    doi: str = Field(examples=["10.1000/182"])
    confidence: Confidence = Field(
        description="How certain it is: the text as it stands, its most doubtful repair, or derived from another "
        "identifier."
    )
    rule: str | None = Field(description="The first repair; null for a literal reading.", examples=["label"])


#: The attributes that `Route.matches`, `Route.url_path_for` and our own list of paths read, all without building.
USED: Final = ("path", "endpoint", "name", "methods", "path_regex", "path_format", "param_convertors")


class DeferredRoute(APIRoute):
    """A route that knows its path and methods, and that FastAPI builds when anything else of it is read.

    FastAPI reads signatures and models for 0.35 ms a route, 11 of the 22 ms that it takes to build an application. A
    process uses few of its routes, and most processes only `/healthz`.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: Any = None, **options: Any) -> None:
        # Those of USED, as starlette's Route has them.
        self.path, self.endpoint, self.name = path, endpoint, options.get("name") or get_name(endpoint)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in methods or ("GET",)}
        self._options: dict[str, Any] | None = options

    def __getattr__(self, name: str) -> Any:
        # Called for what is missing. Another thread may build the same meanwhile.
        options = self.__dict__.get("_options")
        if options is None:
            raise AttributeError(name)
        super().__init__(self.path, self.endpoint, methods=self.methods, **options)
        self._options = None
        return getattr(self, name)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What FastAPI calls, after a check of the names of the query parameters."""
        answer, known = super().get_route_handler(), list_parameters(self.dependant)

        async def check_and_answer(request: Request) -> Response:
            if known and request.scope["query_string"]:
                refuse_slips(request.query_params, known)
            return await answer(request)

        return check_and_answer


_METHOD_NOT_ALLOWED: Final = 405


def add_errors(app: FastAPI, base: str, audit: Callable[[Request, DoiProxyError], None] | None = None) -> None:
    """Answer every error of an application with a problem. `base` is the path of this resolver."""

    @app.exception_handler(InvalidName)
    @app.exception_handler(DoiProxyError)
    async def answer_error(request: Request, error: DoiProxyError | InvalidName) -> Response:
        failure = as_failure(error)
        if audit is not None:
            audit(request, failure)
        return respond(error_problem(failure, base=base))

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(request: Request, error: RequestValidationError) -> Response:
        return respond(problem(400, describe_invalid(error), token=InvalidParameter.token, base=base))

    @app.exception_handler(HTTPException)
    async def answer_refusal(request: Request, error: HTTPException) -> Response:
        return refuse(app, request, error, base)


def refuse(app: FastAPI, request: Request, error: HTTPException, base: str) -> Response:
    """The answer to an error of the framework. A 405 has `Allow` (RFC 9110, section 15.5.6)."""
    path = request.scope["path"]
    if error.status_code != _METHOD_NOT_ALLOWED:
        detail = f"Nothing is at {path[:200]}." if error.detail == "Not Found" else f"{error.detail}."
        return respond(problem(error.status_code, detail, base=base))
    allow = allowed_methods(app, path) or "OPTIONS"
    if request.method == "OPTIONS":
        return Response(status_code=204, headers={"allow": allow})
    detail = f"{path[:200]} does not answer {request.method[:20]}; it answers {allow}."
    return respond(problem(_METHOD_NOT_ALLOWED, detail, ((b"allow", allow.encode()),), base=base))


def allowed_methods(app: FastAPI, path: str) -> str | None:
    """The methods of all routes of a path, in the form of `Allow`. None if no route has the path."""
    methods = set[str]()
    for route in app.routes:
        pattern = getattr(route, "path_regex", None)
        if pattern is not None and pattern.match(path):
            methods |= getattr(route, "methods", None) or set()
    known = [method for method in ("GET", "HEAD", "POST") if method in methods]
    return ", ".join([*known, "OPTIONS"]) if methods else None


def describe_invalid(error: RequestValidationError) -> str:
    """The first thing that is wrong with the parameters or the body of a request, after its place."""
    first = error.errors()[0]
    # The place of a syntax error in JSON is in its message.
    where = "" if first["type"] == "json_invalid" else ".".join(str(part) for part in first["loc"][1:])
    message = explain_value(first)
    return f"{where}: {message}." if where else f"{message[:1].upper()}{message[1:]}."


def respond(reply: Reply) -> Response:
    """A reply in the form of FastAPI."""
    return Response(reply.body, reply.status, text_headers(*reply.headers, *reply.freshness))
