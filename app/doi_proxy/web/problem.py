"""Errors for programs: problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Any, Final

import msgspec

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify, DoiProxyError, TooManyRequests, list_errors
from doi_proxy.resolver.resolution import Resolution
from doi_proxy.web.failure_headers import failure_headers, quota_headers
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT
from doi_proxy.web.header import Header
from doi_proxy.web.responses import Reply
from handle_protocol.value import escape_separators

#: RFC 9457, section 6.1.
PROBLEM: Final[Header] = (b"content-type", b"application/problem+json")
#: The page that explains the types. A type is a URL of this page; its fragment is the token.
DOCUMENTATION_PATH: Final = "/docs"
#: Tokens of problems without a class in `doi_proxy.errors`.
NOT_FOUND: Final = "not-found"
GONE: Final = "gone"
#: The titles of the core's problem types by their tokens (RFC 9457, section 3.1.3).
TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        NOT_FOUND: "The name is not registered",
        GONE: "The operator says that the name is gone",
        "no-such-resource": "Nothing is at this address",
        "method-not-allowed": "The address does not answer this method",
        "unauthorized": "The request needs a token",
        "forbidden": "The request is refused",
        "unsupported-media-type": "The body has another media type",
        "internal-error": "This resolver made an error",
        "invalid-request": "The request cannot be answered",
        "invalid-name": "The name cannot be a DOI name",
        "malformed-escape": "A percent sign does not begin an escape",
        "not-utf-8": "The name is not UTF-8",
        "forbidden-code-point": "The name has a control character or surrogate",
        "name-too-long": "The name is too long",
        "empty-name": "The request has no name",
        "not-a-doi": "The name is not a DOI name",
        "no-doi-in-openurl": "The OpenURL does not name a DOI",
        "invalid-parameter": "A parameter has an invalid value",
        "request-too-large": "The request is too large",
        "client-denied": "The network of the client is not served",
        "request-loop": "The request is a query of this resolver",
        "too-many-requests": "The client is over a limit",
        "too-many-connections": "Too many connections are open",
        "rate-exceeded": "The client sent requests too fast",
        "not-answerable": "The handle system has no answer",
        "alias-chain-too-long": "The aliases of the name do not end",
        "prefix-inactive": "The prefix is out of use",
        "not-asked": "The name could not be verified",
        "upstream-timeout": "The upstream did not answer in time",
        "upstream-unreachable": "The upstream could not be reached",
        "upstream-refused": "The upstream refused to answer",
        "upstream-bad-answer": "The upstream's answer is not valid",
        "signature-invalid": "The signature of the answer is missing or wrong",
        "breaker-open": "The upstream failed repeatedly",
        "upstream-paused": "The upstream requested a pause",
        "upstream-loop": "The query to the upstream came back to this resolver",
        "budget-spent": "The budget of upstream queries is spent",
        "places-full": "Too many upstream queries are in flight",
        "upstream-slow": "The upstream is slow",
        "resources-short": "This resolver is short of memory or of open files",
        "share-spent": "The client has too many waiting queries",
        "not-cached": "The cache has no answer",
        "sealed": "The name is not in this sealed resolver",
        "prefix-denied": "The operator refuses the prefix",
    }
)
#: The tokens of problems that only have a status.
_TOKENS_OF_STATUSES: Final = {
    401: "unauthorized",
    403: "forbidden",
    404: "no-such-resource",
    405: "method-not-allowed",
    413: "request-too-large",
    414: "name-too-long",
    415: "unsupported-media-type",
    429: "too-many-requests",
    431: "request-too-large",
}


def all_titles() -> dict[str, str]:
    """The title of each problem type by its token, with those of the features that are loaded."""
    return {**TITLES, **{error.token: error.title for error in list_errors() if "title" in vars(error) and error.title}}


def problem(
    status: int,
    detail: str,
    headers: tuple[Header, ...] = (),
    *,
    token: str | None = None,
    base: str = "",
    freshness: tuple[Header, ...] = (NO_STORE,),
    **members: Any,
) -> Reply:
    """A problem. Without a `token`, the status decides its type. `members` that are None are left out.

    `base` is the path of this resolver without a slash at its end. The members of this program are `doi`,
    `suggestions` and `retry_after` (RFC 9457, section 3.2).
    """
    usual = "invalid-request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal-error"
    token = token or _TOKENS_OF_STATUSES.get(status, usual)
    title = TITLES.get(token) or all_titles().get(token) or HTTPStatus(status).phrase
    kind = f"{base}{DOCUMENTATION_PATH}#{token}"
    body: dict[str, Any] = {"type": kind, "title": title, "status": status, "detail": detail}
    body |= {name: value for name, value in members.items() if value is not None}
    return Reply(status, (PROBLEM, *headers), escape_separators(msgspec.json.encode(body)), freshness)


def error_problem(
    error: DoiProxyError, *, base: str = "", name: HandleName | None = None, members: Mapping[str, Any] | None = None
) -> Reply:
    """The problem of an error, about the name of the request if it could be read. `members` are those of sections."""
    wait = getattr(error, "retry_after", None)
    return problem(
        error.status,
        error.message,
        (VARY_ACCEPT, *_headers(error)),
        token=error.token,
        base=base,
        doi=_doi_member(name),
        **(members or {}),
        retry_after=None if wait is None else max(1, ceil(wait)),
    )


def not_found_problem(
    resolution: Resolution, base: str, freshness: tuple[Header, ...], members: Mapping[str, Any]
) -> Reply:
    """The problem about a name that is not registered, or that the operator's local records call gone."""
    name, stone = resolution.name, resolution.tombstone
    if stone is not None:
        return problem(
            410,
            f"{stone.reason} ({stone.date})",
            (VARY_ACCEPT,),
            token=GONE,
            base=base,
            freshness=freshness,
            doi=_doi_member(name),
        )
    return problem(
        404,
        f"The upstream answered that {name.text} is not registered.",
        (VARY_ACCEPT,),
        token=NOT_FOUND,
        base=base,
        freshness=freshness,
        doi=_doi_member(name),
        **members,
    )


def _doi_member(name: HandleName | None) -> str | None:
    """The member `doi`: the name as the client spelled it, if it is a DOI name or a shortDOI."""
    return name.text if name is not None and (name.is_doi or name.is_short_doi) else None


def _headers(error: DoiProxyError) -> tuple[Header, ...]:
    if isinstance(error, CouldNotVerify):
        return failure_headers(error)
    return quota_headers(error.quota, error.retry_after) if isinstance(error, TooManyRequests) else ()
