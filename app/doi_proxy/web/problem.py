"""Errors as answers: problem details for programs (RFC 9457), and pages for people."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from math import ceil
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import structs

from doi_names.errors import NotADOI
from doi_names.name import HandleName
from doi_proxy import errors
from doi_proxy.errors import CouldNotVerify, DoiProxyError, TooManyRequests, list_errors
from doi_proxy.resolver.resolution import Resolution
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT, VARY_ACCEPT_AND_LANGUAGE
from doi_proxy.web.negotiation import Varies, wants_problem
from doi_proxy.web.pages import Link, Pages, choose_wait
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Header, client_of, format_query
from doi_proxy.web.responses import FailureBasis, Reply, failure_headers, page, quota_headers, seconds_to_wait
from doi_proxy.web.shown_values import (
    MAX_CHARACTERS_SHOWN,
    contact_link,
    public_handle_url,
    readable,
    show_name,
)
from doi_proxy.web.stage import PageKind, Section, read_sections
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


log = logging.getLogger(__name__)

#: The title of the page for a status without a page of its own.
_TITLES = {
    404: "error_not_here",
    405: "error_method",
    413: "error_too_large",
    414: "error_too_long",
    431: "error_too_large",
    508: "error_request",
}
_OUR_FAULT: Final = "This resolver made an error. Try again; if it happens again, tell its operators."


class ErrorPages:
    """Shows every error: those of the tree in `doi_proxy.errors`, and any other."""

    def __init__(self, *, pages: Pages, link: Link, sections: Sequence[Section]) -> None:
        self._pages = pages
        self._sections = sections
        self._link = link

    async def find_in_text(self, request: Request, typed: str) -> Sequence[HandleName]:
        """The names in a text of the form, none for a client that wants a problem."""
        if wants_problem(request.header(b"accept")):
            return ()
        for section in self._sections:
            if names := await section.find_in_text(typed, client_of(request.client_address)):
                return names
        return ()

    def show_found(self, request: Request, names: Sequence[HandleName], typed: str) -> Reply:
        """The page about the names in a text of the form. If it is one, it exists."""
        language = request.language(self._pages.languages)
        typed = readable(typed[:MAX_CHARACTERS_SHOWN])
        if len(names) == 1:
            body = self._pages.render("found", self._link, language, "found.title", names[0], typed=typed)
        else:
            facts: dict[str, Any] = {"names": [show_name(name) for name in names], "typed": typed}
            body = self._pages.render("found_several", self._link, language, "found.title_several", **facts)
        return _page(200, body)

    def answer(self, request: Request, error: Exception, *, name: HandleName | None, typed: str) -> Reply:
        """The answer about an error of a request for `name`, or for the text that a reader `typed`."""
        if not isinstance(error, errors.FAILURES):
            log.error("a request failed by a fault of this program", exc_info=error)
            return self.answer_status(request, 500, "")
        error = errors.as_failure(error)
        if wants_problem(request.header(b"accept")):
            members = self._read_sections("problem", error, name, typed)
            reply = error_problem(error, base=self._link.base, name=name, members=members)
            return structs.replace(reply, basis=_find_basis(error, name))
        return self._answer_page(request, error, name, typed)

    def _answer_page(self, request: Request, error: errors.DoiProxyError, name: HandleName | None, typed: str) -> Reply:
        pages, language = self._pages, request.language(self._pages.languages)
        link = replace(self._link, query=format_query(request.query))

        def show(template: str, title_key: str, about: HandleName | None = None, **shown: Any) -> Reply:
            body = pages.render(template, link, language, title_key, about, **shown)
            return _page(error.status, body, _headers(error))

        facts: dict[str, Any]
        match error:
            case errors.PrefixDenied() if name is not None:
                ways = pages.list_ways(language, name, "unverified")
                return show("prefix_denied", "denied.title", name, reason=error.message, ways=ways)
            case errors.CouldNotVerify() if name is not None:
                again = seconds_to_wait(error)
                facts = {"reason": pages.failure_reason(language, error.token), "wait": again and choose_wait(again)}
                facts["ways"] = pages.list_ways(language, name, "unverified")
                reply = show("could_not_verify", "could_not_verify.title_", name, **facts)
                return structs.replace(reply, basis=_find_basis(error, name))
            case errors.AliasChainTooLong() if name is not None:
                return show("alias_chain_too_long", "alias.title", name, reached=show_name(HandleName(error.reached)))
            case errors.PrefixInactive() if name is not None:
                facts = {"message": error.status_message, "contact": contact_link(error.contact)}
                facts["ways"] = pages.list_ways(language, name, "gone")
                return show("prefix_inactive", "prefix.title", name, **facts)
            case errors.NoDOIInOpenURL():
                return show("openurl", "openurl.title")
            case errors.UnreadableName() if error.status == 400:
                reason = "" if error.token == NotADOI.token else pages.failure_reason(language, error.token)
                cut = typed[:MAX_CHARACTERS_SHOWN]
                facts = {"typed": readable(cut), "reason": reason, "handle_url": public_handle_url(cut)}
                facts |= self._read_sections("not_a_doi", error, name, typed)
                return show("not_a_doi", "not_a_doi.title", **facts)
            case errors.TooManyRequests():
                # The page says when to try again, with the name in its form.
                again = max(1, ceil(error.retry_after))
                body = pages.error(link, language, title_key="error_too_many", typed=typed, retry_after=again)
                return _page(error.status, body, _headers(error))
            case errors.ClientDenied():
                return _page(error.status, pages.error(link, language, title_key="error_denied"))
        return self._show_status(request, error.status, error.message, ())

    def answer_status(self, request: Request, status: int, reason: str, headers: tuple[Header, ...] = ()) -> Reply:
        """The answer about a status that has no error of its own. `reason` is a sentence, or "" if it is ours."""
        if wants_problem(request.header(b"accept")):
            return problem(status, reason or _OUR_FAULT, (VARY_ACCEPT, *headers), base=self._link.base)
        return self._show_status(request, status, reason, headers)

    def _show_status(self, request: Request, status: int, reason: str, headers: tuple[Header, ...]) -> Reply:
        """A page with the title and the text for its status. A request of the reader's own has details, in English."""
        language = request.language(self._pages.languages)
        title = _TITLES.get(status, "error_request" if status < 500 else "error_internal")
        shown = reason if title == "error_request" else ""
        body = self._pages.error(self._link, language, title_key=title, reason=shown)
        return _page(status, body, headers)

    def _read_sections(
        self, kind: PageKind, error: errors.DoiProxyError, name: HandleName | None, typed: str
    ) -> dict[str, Any]:
        """What features add to the answer about what cannot be a DOI name."""
        if not isinstance(error, errors.UnreadableName) or error.status != HTTPStatus.BAD_REQUEST:
            return {}
        return read_sections(self._sections, kind, name, typed)


def _find_basis(error: errors.DoiProxyError, name: HandleName | None) -> FailureBasis | None:
    if name is None or not isinstance(error, errors.CouldNotVerify):
        return None
    return FailureBasis(name, error.without_traceback(), Varies.PROBLEM | Varies.LANGUAGE)


def _page(status: int, body: bytes, headers: tuple[Header, ...] = ()) -> Reply:
    return page(status, body, headers, vary=VARY_ACCEPT_AND_LANGUAGE)
