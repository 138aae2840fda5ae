"""Methods other than GET, HEAD and POST: OPTIONS, the preflight of a browser, and 405 to the rest."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from doi_proxy.web.freshness import PREFLIGHT_MAX_AGE, VARY_PREFLIGHT
from doi_proxy.web.operations import Face
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Parameters
from doi_proxy.web.responses import Reply

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
        failed = face.api.answer_error(405, 4, message, Parameters())
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
