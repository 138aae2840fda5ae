"""Shows errors: as pages for people, as problem details for programs, without tracebacks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from math import ceil
from typing import Any, Final

from msgspec import structs

from doi_names.errors import NotADOI
from doi_names.name import HandleName
from doi_proxy import errors
from doi_proxy.web.client_network import client_of
from doi_proxy.web.failure_headers import failure_headers, quota_headers, seconds_to_wait
from doi_proxy.web.freshness import VARY_ACCEPT, VARY_ACCEPT_AND_LANGUAGE
from doi_proxy.web.header import Header
from doi_proxy.web.negotiation import wants_problem
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import error_problem, problem
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import format_query
from doi_proxy.web.responses import FailureBasis, Reply, page
from doi_proxy.web.section import PageKind, Section, read_sections
from doi_proxy.web.variants import Varies

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
        self._logged_faults: set[type[Exception]] = set()

    def log_fault(self, error: Exception) -> None:
        """Log a fault of this program that may leave the request unharmed: once for each type of error.

        A fault in the shortcut would otherwise only make answers slower, or fill the log with a traceback a request.
        """
        if type(error) not in self._logged_faults:
            self._logged_faults.add(type(error))
            log.error("the shortcut failed by a fault of this program; a task answers instead", exc_info=error)

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
        return _page(200, self._pages.found(self._link, language, names=names, typed=typed))

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
        language = request.language(self._pages.languages)
        link = replace(self._link, query=format_query(request.query))
        if isinstance(error, errors.PrefixDenied) and name is not None:
            body = self._pages.prefix_denied(self._link, language, name=name, reason=error.message)
            return _page(error.status, body, failure_headers(error))
        if isinstance(error, errors.CouldNotVerify) and name is not None:
            again, reason = seconds_to_wait(error), self._pages.failure_reason(language, error.token)
            body = self._pages.could_not_verify(link, language, name=name, reason=reason, retry_after=again)
            return structs.replace(_page(error.status, body, failure_headers(error)), basis=_find_basis(error, name))
        if isinstance(error, errors.AliasChainTooLong) and name is not None:
            reached = HandleName(error.reached)
            body = self._pages.alias_chain_too_long(link, language, name=name, reached=reached)
            return _page(error.status, body)
        if isinstance(error, errors.PrefixInactive) and name is not None:
            body = self._pages.prefix_inactive(
                self._link, language, name=name, message=error.status_message, contact=error.contact
            )
            return _page(error.status, body)
        if isinstance(error, errors.NoDOIInOpenURL):
            return _page(error.status, self._pages.openurl(self._link, language))
        if isinstance(error, errors.UnreadableName) and error.status == 400:
            found = self._read_sections("not_a_doi", error, name, typed)
            reason = "" if error.token == NotADOI.token else self._pages.failure_reason(language, error.token)
            body = self._pages.not_a_doi(link, language, typed=typed, reason=reason, sections=found)
            return _page(error.status, body)
        if isinstance(error, errors.TooManyRequests):
            return self._refuse(language, error, typed)
        if isinstance(error, errors.ClientDenied):
            return _page(error.status, self._pages.error(self._link, language, title_key="error_denied"))
        return self._show_status(request, error.status, error.message, ())

    def _refuse(self, language: str, error: errors.TooManyRequests, typed: str) -> Reply:
        """A page that says when to try again, with the name in its form."""
        again = max(1, ceil(error.retry_after))
        body = self._pages.error(self._link, language, title_key="error_too_many", typed=typed, retry_after=again)
        return _page(error.status, body, quota_headers(error.quota, error.retry_after))

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
