"""`10320/headers`: headers that a record wants on its redirect, as far as the operator allows them by name."""

from __future__ import annotations

import re
from typing import Final

from app.doi.name import HandleName
from app.doi.uri import component, template_path
from app.handle.record import Record
from app.web.responses import EVERYWHERE, Header

#: Headers that no record may set, whatever the operator allows: ours, and those that the connection is made of.
NEVER: Final = frozenset(
    {name for name, _ in EVERYWHERE}
    | {b"cache-control", b"connection", b"content-length", b"content-security-policy", b"content-type", b"date"}
    | {b"expires", b"keep-alive", b"link", b"location", b"set-cookie", b"strict-transport-security", b"trailer"}
    | {b"transfer-encoding", b"upgrade", b"vary", b"cache-status", b"proxy-status"}
)
#: Headers of one record, and characters of each value, after which the rest is left out.
MOST_HEADERS: Final = 20
MAX_VALUE: Final = 1_000
#: A header line (RFC 9110, section 5.5); lines for the page of the redirect begin with "<" and are left out.
_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e][\x20-\x7e\t]*)")


def record_headers(record: Record, name: HandleName, allowed: frozenset[bytes]) -> list[Header]:
    """The headers of a record whose lower-case names are allowed, {hdl} and {hdl:path} filled in."""
    if not allowed:
        return []
    found: list[Header] = []
    for value in record.of_type("10320/headers."):
        for line in (value.text or "").splitlines()[: 10 * MOST_HEADERS]:
            filled = line.replace("{hdl:path}", template_path(name)).replace("{hdl}", component(name))
            match = _LINE.fullmatch(filled.strip())
            if match is not None and (key := match[1].lower().encode()) in allowed - NEVER:
                found.append((key, match[2][:MAX_VALUE].encode()))
    return found[:MOST_HEADERS]
