"""The answers of the OpenAPI document: statuses, media types and headers that several paths share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from app.web.media_types import HTML, JAVASCRIPT, JSON, PROBLEM, TEXT, XML

#: A part of an OpenAPI document.
Part = dict[str, Any]

_STRING: Final[Part] = {"type": "string"}
_SECONDS: Final[Part] = {"type": "integer", "minimum": 0}
_SCHEMAS: Final[Mapping[str, Part]] = MappingProxyType(
    {
        HTML: {"schema": _STRING},
        JAVASCRIPT: {"schema": _STRING},
        TEXT: {"schema": _STRING},
        XML: {"schema": _STRING},
        PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemModel"}},
    }
)
#: Every header of an answer: its schema and its meaning.
HEADERS: Final[Mapping[str, tuple[Part, str]]] = MappingProxyType(
    {
        "Access-Control-Allow-Headers": (_STRING, "The headers that a page of another site may send."),
        "Access-Control-Allow-Methods": (_STRING, "The methods that a page of another site may use."),
        "Access-Control-Allow-Origin": ({"const": "*"}, "Pages of every site may read the answer."),
        "Access-Control-Expose-Headers": (_STRING, "The headers that a page of another site may read."),
        "Access-Control-Max-Age": (_SECONDS, "Seconds for which a browser may store the answer to a preflight."),
        "Age": (_SECONDS, "Seconds since the upstream gave the answer."),
        "Allow": (_STRING, "The methods of this path."),
        "Cache-Control": (_STRING, "Whether, where and how long the answer may be stored (RFC 9111)."),
        "Cache-Status": (_STRING, "Where the answer comes from, and the rest of its TTL (RFC 9211)."),
        "Content-Encoding": (_STRING, "`zstd` or `gzip`, if the answer is compressed."),
        "Content-Security-Policy": (_STRING, "A page loads nothing from other hosts."),
        "ETag": (_STRING, "Identifies the body; send it in `If-None-Match`."),
        "Expires": (_STRING, "When the record ends."),
        "Link": (_STRING, "The address to cite (`rel=cite-as`, RFC 8574), and the links of the record (RFC 8288)."),
        "Location": ({"type": "string", "format": "uri-reference"}, "Where the request leads."),
        "Proxy-Status": (_STRING, "Why the name could not be verified (RFC 9209)."),
        "RateLimit": (_STRING, "What is left of the limit."),
        "RateLimit-Policy": (_STRING, "The limit that the client is over."),
        "Referrer-Policy": (_STRING, "Other sites do not see which page led to them."),
        "Retry-After": (_SECONDS, "Seconds until the request can succeed."),
        "Set-Cookie": (_STRING, "The reader's choice."),
        "Vary": (_STRING, "The request headers on which the answer depends."),
        "WWW-Authenticate": (_STRING, "The request needs a Bearer token, or another one (RFC 6750)."),
        "X-Accel-Buffering": (_STRING, "`no`: a front proxy passes the rows on as they come."),
        "X-Content-Type-Options": ({"const": "nosniff"}, "Browsers do not guess the media type."),
        "X-Request-ID": (_STRING, "The one of the request."),
    }
)
_EVERY: Final = (
    "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Cache-Control", "Content-Encoding",
    "Content-Security-Policy", "Referrer-Policy", "Vary", "X-Content-Type-Options", "X-Request-ID",
)  # fmt: skip
_ABOUT_NAMES: Final = ("Age", "Cache-Status", "ETag", "Expires", "Link")
_PREFLIGHT: Final = ("Allow", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Max-Age")
_LIMITED: Final = ("Retry-After", "RateLimit", "RateLimit-Policy", "Proxy-Status")
#: The headers of each status, in addition to those of every answer.
_OF_STATUS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "200": (*_ABOUT_NAMES, "Location", "X-Accel-Buffering"),
        "204": _PREFLIGHT,
        **dict.fromkeys(("301", "302", "303", "307", "308"), (*_ABOUT_NAMES, "Location", "Set-Cookie")),
        "304": _ABOUT_NAMES,
        "401": ("WWW-Authenticate",),
        "403": ("Proxy-Status", "WWW-Authenticate"),
        "404": _ABOUT_NAMES,
        "410": _ABOUT_NAMES,
        "429": _LIMITED,
        **dict.fromkeys(("502", "503", "504"), ("Proxy-Status", "Retry-After")),
    }
)
_REDIRECTS: Final = ("301", "302", "303", "307", "308")
#: Texts of statuses that mean the same on many paths.
MEANINGS: Final[Mapping[int, str]] = MappingProxyType(
    {
        204: "The methods of this path, and for a browser's preflight (CORS) the permission to use them.",
        304: "The client has this answer already: `If-None-Match` has its ETag.",
        400: "The request cannot be answered as it stands.",
        401: "The request has no token, or not the right one.",
        403: "The operator refuses the network of the client, or the prefix of the name.",
        408: "The request did not arrive in time.",
        410: "The operator says that the name is gone.",
        413: "The body is too large.",
        414: "The name or the address is too long.",
        415: "The body is not of one of these media types.",
        429: "The client is over a limit; see Retry-After.",
        431: "The head of the request is too large.",
        500: "A fault of this program.",
        502: "Could not verify: the upstream could not be reached, or its answer is not valid.",
        503: "Could not verify: the budget is spent, or queries to the upstream are paused; see Retry-After.",
        504: "Could not verify: the upstream did not answer in time, or the request allows no query.",
        508: "The request is a query of this resolver that came back to it.",
    }
)


def content(*media_types: str, **schemas: Part) -> Part:
    """The content of an answer in these media types. `schemas` has the schema of `json`."""
    own = {JSON: {"schema": schemas["json"]}} if "json" in schemas else {}
    return {kind: dict(own.get(kind) or _SCHEMAS[kind]) for kind in media_types}


def answer(text: str, *media_types: str, **schemas: Part) -> Part:
    """An answer without its headers, which `add_headers` adds."""
    return {"description": text, "content": content(*media_types, **schemas)}


def answers(statuses: Iterable[int], *media_types: str, **schemas: Part) -> Part:
    """Answers that mean what MEANINGS says."""
    return {str(status): answer(MEANINGS[status], *media_types, **schemas) for status in statuses}


def add_server_answers(responses: Part) -> None:
    """Add what the server answers to a request that it cannot read, or not in time. Such an answer is plain text."""
    for status in (400, 408, 431):
        responses.setdefault(str(status), answer(MEANINGS[status]))["content"] |= content(TEXT)
    if "500" not in responses:
        responses["500"] = answer(MEANINGS[500], TEXT)


def add_headers(responses: Part, *, shared: bool) -> None:
    """Add the headers of each answer. Pages of other sites can read the answers of a path that is `shared`."""
    for status, described in responses.items():
        names = [*_EVERY, *_OF_STATUS.get(status, ())]
        if not shared:
            names = [name for name in names if not name.startswith("Access-Control-")]
        headers = described.setdefault("headers", {})
        for name in sorted(set(names)):
            headers.setdefault(name, {"$ref": f"#/components/headers/{name}"})
        if status in _REDIRECTS:
            headers["Location"] = {**header_component("Location"), "required": True}


def header_component(name: str) -> Part:
    """A header of HEADERS as OpenAPI has it."""
    schema, text = HEADERS[name]
    return {"description": text, "schema": schema}


def without_content(responses: Part) -> Part:
    """The same answers to HEAD, which have no body (RFC 9110, section 9.3.2)."""
    return {
        status: {key: part for key, part in described.items() if key != "content"}
        for status, described in responses.items()
    }
