"""What may stand in a `Location` header: an address made safe, or nothing (RFC 9110, section 10.2.2; RFC 3986)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import ada_url

from app.errors import InvalidParameter

#: Schemes a browser may be sent to. Everything else (javascript:, data:, irods:, …) shows the values page.
SCHEMES: Final = frozenset({"http", "https", "ftp", "mailto"})
#: Schemes whose addresses have a host: to those alone can text be added without another meaning.
_HIERARCHICAL: Final = ("http:", "https:", "ftp:")
#: Bytes that stay as they are; "%" because a target is a URL already and its escapes are its own.
_LITERAL: Final = "-._~!$()*,:@/;=+&'?#[]%"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: scheme://userinfo@host — the host, where it is not ASCII, goes to punycode.
_HOST: Final = re.compile(r"((?:https?|ftp)://(?:[^/?#@]*@)?)([^/?#:@\[\]]+)", re.IGNORECASE)
#: Longer targets are refused by browsers and front proxies alike.
MAX_REDIRECT_TARGET_BYTES: Final = 16_384
_MAX_HOST_CHARACTERS: Final = 253


def web_target(url: str, append: str | None = None) -> str | None:
    """The URL as pure ASCII for `Location`, with `append` put behind it; None where nobody should be sent there.

    Raises InvalidParameter where `append` would lead to another scheme or host than the record does.
    """
    encoded_url = _encode(url.strip())
    if encoded_url is None or not append:
        return encoded_url
    longer = _encode(url.strip() + append)
    if longer is None or _origin(longer) != _origin(encoded_url):
        raise InvalidParameter(
            "urlappend may add to the path, query or fragment of the target; here it would change the target's host."
        )
    return longer


def takes_appendix(url: str) -> bool:
    """Whether `urlappend` can be put after a URL; after mailto: it would change whom a message goes to (RFC 6068)."""
    return url.lstrip().lower().startswith(_HIERARCHICAL)


def _encode(url: str) -> str | None:
    scheme = _SCHEME.match(url)
    # Refused before it is encoded, which takes 60 ns for a byte that is not ASCII.
    if scheme is None or scheme[1].lower() not in SCHEMES or len(url) > 2 * MAX_REDIRECT_TARGET_BYTES:
        return None
    if not url.isascii():
        url = _HOST.sub(_punycode, url, count=1)
    encoded = quote(url, safe=_LITERAL)
    if len(encoded) > MAX_REDIRECT_TARGET_BYTES or len(encoded) == scheme.end():
        return None
    return encoded


def _punycode(found: re.Match[str]) -> str:
    # A host has at most 253 characters (RFC 1123, section 2.1), and Punycode takes quadratic time (RFC 3492).
    if found[2].isascii() or len(found[2]) > _MAX_HOST_CHARACTERS:
        return found[0]
    # A host that IDNA refuses comes back empty and is left to be percent-encoded, as a browser would show it.
    return found[1] + (ada_url.idna_to_ascii(found[2].encode()).decode() or found[2])


def _origin(url: str) -> tuple[str, str, str, str] | None:
    """Where a browser would really go: WHATWG URL parsing, which is not RFC 3986."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    return parsed.protocol, parsed.username, parsed.password, parsed.host
