"""The parameters of the OpenAPI document."""

from __future__ import annotations

from typing import Final

from app.features.openapi.answers import Part

#: A member of an operation: a path and query to try.
EXAMPLE: Final = "x-example"
#: A member of an operation: the method of the same path that answers in the same way.
LIKE: Final = "x-like"


def describe_path(name: str, text: str, schema: Part) -> Part:
    """A parameter in the path."""
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema}


def describe_query(name: str, text: str, schema: Part) -> Part:
    """A parameter in the query. It has no default: a client that sends one would set a flag."""
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


def flag(name: str, text: str) -> Part:
    """A parameter that counts by being there. Empty, `yes` and `true` are true on every path."""
    return {**describe_query(name, text, {"type": "string", "examples": [""]}), "allowEmptyValue": True}


def _describe_header(name: str, text: str, schema: Part | None = None) -> Part:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": schema or {"type": "string"},
    }


#: Headers of requests that count on most paths.
COMMON_PARAMETERS: Final = [
    _describe_header("Accept-Language", "The language of pages, and of locations that have one."),
    _describe_header("If-None-Match", "ETags of answers that the client has."),
    _describe_header("Cache-Control", "How old the answer may be (RFC 9111, section 5.2.1)."),
    _describe_header(
        "X-Request-ID",
        "Sent back with the answer.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]+$", "maxLength": 64},
    ),
]
#: Headers of a browser's preflight (WHATWG Fetch, section 3.3.5).
PREFLIGHT_PARAMETERS: Final = [
    _describe_header("Origin", "The site that wants to send a request."),
    _describe_header("Access-Control-Request-Method", "The method of that request."),
    _describe_header("Access-Control-Request-Headers", "The headers of that request."),
]
