"""The heads of requests that can have a prepared answer: those that every parser reads alike, without conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from doi_proxy.server.host import is_host
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.variants import SELECTING, Variant, select_variant

#: A path and a query (RFC 9112, section 3.2.1). uvicorn also reads a fragment and an absolute URL.
ORIGIN_FORM: Final = re.compile(rb"/[!\"$-~]*")
#: The header lines of a request (RFC 9112, section 5), without the forms that parsers read differently.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+\r\n")
#: Headers with which a request takes the full path.
NOT_PLAIN: Final = frozenset(
    {
        b"authorization",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"if-none-match",
        b"x-request-id",
        CACHE_CONTROL,
    }
)
#: The server's parser obeys both. HTTP/1.1 does not define the second (RFC 9112, appendix C.2.2).
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})
_HOST: Final = b"host"
#: It does not select an answer. It names the client, for limits and logs.
FORWARDED_FOR: Final = b"x-forwarded-for"
_FORWARDED_LINE: Final = b"\r\nX-Forwarded-For:"
#: The bytes of its usual form: addresses only.
_ADDRESSES: Final = b"0123456789ABCDEFabcdef.:, "
#: A line of which no answer here depends, in its usual form. A reader's session is in it.
_COOKIE: Final = re.compile(rb"\r\n[Cc]ookie:[^\x00-\x08\x0a-\x1f\x7f]*(?=\r\n)")
#: That line in another form, and those in which front proxies and content delivery networks name the client (among them
#: Forwarded, RFC 7239).
_PRIVATE: Final = re.compile(
    rb"(?:\A|\n)(?:cookie|x-forwarded-for|forwarded|x-(?:real|client|cluster-client)-ip|true-client-ip"
    rb"|fastly-client-ip|cf-connecting-ip(?:v6)?):",
    re.IGNORECASE,
)
#: What the header lines of a request select, and its X-Forwarded-For.
Selected = tuple[Variant, bytes | None]
_READ: Final = frozenset({*SELECTING, FORWARDED_FOR, _HOST})


def cut_private(request: bytes) -> tuple[bytes, bytes | None]:
    """A request without what its reader alone sends, and the value of its first X-Forwarded-For.

    Cut are that line and Cookie. The value is None if the line is missing or has another form.
    """
    request = request if request.find(b"ookie:") < 0 else _COOKIE.sub(b"", request)  # `sub` takes three times as long
    before, _, rest = request.partition(_FORWARDED_LINE)
    value, end, rest = rest.partition(b"\r\n")
    return (before + end + rest, value.strip()) if value and not value.translate(None, _ADDRESSES) else (request, None)


def read_plain(head: bytes) -> Mapping[bytes, str] | None:
    """The headers that count, given the header lines of a request. None if the request takes the full path.

    Several lines are one list (RFC 9110, section 5.3).
    """
    if not _LINES.fullmatch(head):
        return None
    found: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\r\n")[:-2]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in NOT_PLAIN or (name in _CONNECTION and value.strip(b" \t").lower() != b"keep-alive"):
            return None
        if name in _READ:
            found.setdefault(name, []).append(value.strip(b" \t"))
    hosts = found.get(_HOST, ())
    if len(hosts) != 1 or not is_host(hosts[0]):
        return None
    return {name: b", ".join(values).decode("latin-1") for name, values in found.items()}


def is_private(head: bytes) -> bool:
    """Whether header lines have the address of a client or what a reader alone sends. They are not kept."""
    return _PRIVATE.search(head) is not None


def select_head(head: bytes, languages: tuple[str, ...]) -> Selected | None:
    """What the header lines of a request select, and its X-Forwarded-For. None if the request takes the full path."""
    fields = read_plain(head)
    selected = None if fields is None else select_variant(fields.get, languages)
    if fields is None or selected is None:
        return None
    forwarded_for = fields.get(FORWARDED_FOR)
    return selected, None if forwarded_for is None else forwarded_for.encode("latin-1")
