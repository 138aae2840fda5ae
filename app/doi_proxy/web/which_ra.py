"""`/doiRA/<DOI>[,<DOI>…]` and `/ra/<DOI or prefix>[,…]`: which agency registered a name (DOI Handbook, chapter 3).

Programs get JSON. A browser, which prefers `text/html`, gets a page with a form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.percent import decode
from doi_names.presentation import read, read_typed
from doi_proxy.resolver.options import NO_FACTS, Conditions
from doi_proxy.resolver.which_ra import INVALID, WhichRa
from doi_proxy.web.conditions import due_of
from doi_proxy.web.freshness import AGENCIES, NO_STORE, OWN_PAGE, VARY_ACCEPT, vary
from doi_proxy.web.negotiation import wants_page
from doi_proxy.web.operations import Face
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import read_form_body
from doi_proxy.web.responses import JSON, Reply, page
from handle_protocol.value import escape_separators

#: Names in one request.
MAX_NAMES: Final = 100
#: The parameter of the form.
FORM_PARAMETER: Final = "names"
_SEPARATORS: Final = re.compile(r"[\s,]+")


async def answer(request: Request, raw: bytes, client: str, face: Face) -> Reply:
    """The answer about the names in `raw`: a page, or JSON. Upstream queries are charged to `client`."""
    conditions = Conditions(client=client, due=due_of(request))
    if wants_page(request.header(b"accept")):
        return await _answer_page(raw, conditions, request, face)
    return await _answer_json(face.which_ra, raw, conditions, request.query)


async def _answer_json(which_ra: WhichRa, raw: bytes, conditions: Conditions, query: bytes) -> Reply:
    """A JSON array with a row for each name, always 200. A comma inside a name must be written `%2C`.

    If the path has no names, each parameter of the form is one: generated clients escape the commas of a path.
    """
    listed = () if raw else read_form_body(query).all(FORM_PARAMETER)
    parts = raw.split(b",")
    if len(listed or parts) > MAX_NAMES:
        message = f"At most {MAX_NAMES} names are answered at once; these are {len(listed or parts)}."
        return Reply(400, (JSON, VARY_ACCEPT), msgspec.json.encode({"message": message}), (NO_STORE,))
    names = [_read_text(text) for text in listed] or [_read_part(part) for part in parts]
    rows = await which_ra.rows(names, conditions)
    body = escape_separators(msgspec.json.format(msgspec.json.encode(rows), indent=2))
    return Reply(200, (JSON, VARY_ACCEPT), body, (AGENCIES if _is_verified(rows) else NO_STORE,))


async def _answer_page(raw: bytes, conditions: Conditions, request: Request, face: Face) -> Reply:
    """The answer as a page. If the path has no names, they come from the form, where spaces can separate them too."""
    pages, link = face.pages, face.link
    language, vary_page = request.language(pages.languages), vary(NO_FACTS, is_page=True)
    form = "" if raw else read_form_body(request.query).first(FORM_PARAMETER) or ""
    typed = [text for text in _SEPARATORS.split(form) if text]
    given = raw.count(b",") + 1 if raw else len(typed)
    if given > MAX_NAMES:
        body = pages.which_ra(link, language, rows=(), count=MAX_NAMES, given=given)
        return page(400, body, vary=vary_page)
    names = [_read_part(part) for part in raw.split(b",")] if raw else [_read_typed(text) for text in typed]
    rows = await face.which_ra.rows(names, conditions) if names else []
    body = pages.which_ra(link, language, rows=list(zip(names, rows, strict=True)), count=MAX_NAMES)
    freshness = OWN_PAGE if not names else AGENCIES if _is_verified(rows) else NO_STORE
    return page(200, body, freshness=(freshness,), vary=vary_page)


def _is_verified(rows: Sequence[dict[str, str]]) -> bool:
    return all("RA" in row or row["status"] == INVALID for row in rows)


def _read_typed(text: str) -> tuple[str, HandleName | None]:
    try:
        return text, read_typed(text)
    except InvalidName:
        return text, None


def _read_part(raw: bytes) -> tuple[str, HandleName | None]:
    try:
        text = decode(raw)
    except InvalidName:
        return raw.decode("latin-1"), None
    return _read_text(text)


def _read_text(text: str) -> tuple[str, HandleName | None]:
    try:
        return text, read(text)
    except InvalidName:
        return text, None
