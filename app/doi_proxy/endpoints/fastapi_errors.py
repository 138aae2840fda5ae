"""Errors of the paths that FastAPI answers, as problem details, and the methods of these paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from doi_names.errors import InvalidName
from doi_proxy.endpoints.invalid_values import explain_value
from doi_proxy.endpoints.own_pages import text_headers
from doi_proxy.errors import DoiProxyError, InvalidParameter, as_failure
from doi_proxy.web.problem import error_problem, problem
from doi_proxy.web.responses import Reply

_METHOD_NOT_ALLOWED: Final = 405
#: The order in `Allow`.
_ORDER: Final = ("GET", "HEAD", "POST")


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
    return ", ".join([*(method for method in _ORDER if method in methods), "OPTIONS"]) if methods else None


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
