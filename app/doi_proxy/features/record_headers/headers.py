"""`10320/headers`: the headers that a record adds to its redirect, if the operator allows their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from doi_names.name import HandleName
from doi_names.presentation import component, template_path
from doi_proxy.errors import ConfigurationError
from doi_proxy.web.request_path import Header
from doi_proxy.web.responses import COMMON_HEADERS, PAGE_POLICY
from doi_proxy.web.stage import Stage
from handle_protocol.location import fill_template
from handle_protocol.value import Record

#: Headers that a record can never set. The operator cannot allow them.
NEVER: Final = frozenset(
    {name for name, _ in (*COMMON_HEADERS, *PAGE_POLICY)}
    # Framing and the connection (RFC 9112).
    | {b"connection", b"content-encoding", b"content-length", b"content-range", b"content-type", b"date"}
    | {b"keep-alive", b"server", b"status", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    # The resolver's own.
    | {b"age", b"allow", b"cache-control", b"cache-status", b"content-location", b"etag", b"expires", b"last-modified"}
    | {b"link", b"location", b"pragma", b"retry-after", b"surrogate-control", b"vary", b"warning"}
    # Headers that change how browsers treat this host.
    | {b"alt-svc", b"clear-site-data", b"nel", b"refresh", b"report-to", b"reporting-endpoints"}
    | {b"service-worker-allowed", b"set-cookie", b"set-cookie2", b"strict-transport-security", b"www-authenticate"}
    | {b"authentication-info", b"x-frame-options", b"permissions-policy"}
    # Headers that front proxies obey and do not pass on.
    | {b"x-litespeed-location", b"x-reproxy-url", b"x-sendfile", b"x-lighttpd-send-file", b"x-lighttpd-sendfile"}
)
#: The same for every header that begins with one of these.
NEVER_PREFIXES: Final = (
    b"access-control-", b"cdn-", b"content-security-policy", b"cross-origin-", b"proxy-", b"ratelimit", b"x-accel-",
)  # fmt: skip
#: Limits of the headers of one record and of each value in characters. The rest is left out.
MAX_HEADERS: Final = 20
MAX_VALUE: Final = 1_000
#: A header line (RFC 9110, section 5.5); lines for the page of the redirect begin with "<" and are left out.
_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e][\x20-\x7e\t]*)")


def read_allowed(setting: Iterable[str]) -> frozenset[bytes]:
    """The lower-case names of the setting `record_headers`. Raises ConfigurationError for a name in NEVER."""
    names = frozenset(name.lower().encode() for name in setting)
    refused = sorted(name.decode() for name in names if _is_forbidden(name))
    if refused:
        raise ConfigurationError(
            f"record_headers: no record may set {', '.join(refused)}: remove it from the list. It would change how"
            " browsers or front proxies treat this host."
        )
    return names


def _is_forbidden(name: bytes) -> bool:
    return name in NEVER or name.startswith(NEVER_PREFIXES)


class RecordHeaders(Stage):
    """Adds the headers whose lower-case names are allowed."""

    def __init__(self, allowed: frozenset[bytes]) -> None:
        self._allowed = allowed

    def record_headers(self, record: Record, name: HandleName) -> list[Header]:
        """See Stage."""
        return record_headers(self._allowed, record, name)


def record_headers(allowed: frozenset[bytes], record: Record, name: HandleName) -> list[Header]:
    """The headers of a record whose lower-case names are allowed, with {hdl} and {hdl:path} replaced."""
    headers: list[Header] = []
    encoded = component(name), template_path(name)
    for line in islice(_lines(record), 10 * MAX_HEADERS):
        match = _LINE.fullmatch(fill_template(line, *encoded).strip())
        if match is not None and (key := match[1].lower().encode()) in allowed and not _is_forbidden(key):
            headers.append((key, match[2][:MAX_VALUE].encode()))
    return headers[:MAX_HEADERS]


def _lines(record: Record) -> Iterator[str]:
    for value in record.of_type("10320/headers."):
        yield from (value.text or "").splitlines()
