"""Makes a URL safe for a `Location` header (RFC 9110, section 10.2.2; RFC 3986)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

import ada_url

from doi_names.presentation import BLANKS
from doi_proxy.errors import InvalidParameter

#: Schemes of redirect targets. For any other (javascript:, data:, irods:, …), the values page is shown.
SCHEMES: Final = frozenset({"http", "https", "ftp", "mailto"})
#: Schemes whose URLs have a host. Only to these can `urlappend` be added.
_HIERARCHICAL: Final = ("http:", "https:", "ftp:")
#: Characters that are not encoded. "%" is one of them, because a target has its own escapes.
_LITERAL: Final = "-._~!$()*,:@/;=+&'?#[]%"
#: Most URLs: nothing is encoded.
_ENCODED: Final = re.compile(f"(?ai:{'|'.join(sorted(SCHEMES))}):[A-Za-z0-9{re.escape(_LITERAL)}]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: scheme://userinfo@host, for Punycode if the host is not ASCII.
_HOST: Final = re.compile(r"((?:https?|ftp)://(?:[^/?#@]*@)?)([^/?#:@\[\]]+)", re.IGNORECASE)
#: Browsers and front proxies refuse longer targets.
MAX_REDIRECT_TARGET_BYTES: Final = 16_384
_MAX_HOST_CHARACTERS: Final = 253
#: The version of these rules and of those of doi_proxy.resolver.target. A store ignores the targets that others found.
TARGET_RULES: Final = 2


def web_target(url: str, append: str | None = None) -> str | None:
    """Encode a URL, with `append` at its end, in ASCII for `Location`. None if a redirect to it is not safe.

    Blanks, a byte order mark and zero-width signs at its ends are removed: they are copying errors of a registrant.

    Raises InvalidParameter if `append` would change the scheme or the host.
    """
    url = url.strip(BLANKS)
    encoded_url = _encode(url)
    if encoded_url is None or not append:
        return encoded_url
    longer = _encode(url + append)
    if longer is None or _origin(longer) != _origin(encoded_url):
        raise InvalidParameter(
            "urlappend may add to the path, query or fragment of the target; here it would change the target's host."
        )
    return longer


def takes_appendix(url: str) -> bool:
    """Whether `urlappend` may be added to a URL. In a mailto: URL it would change the recipient (RFC 6068)."""
    return url.lstrip(BLANKS).lower().startswith(_HIERARCHICAL)


def _encode(url: str) -> str | None:
    if _ENCODED.fullmatch(url) and len(url) <= MAX_REDIRECT_TARGET_BYTES:
        return url
    scheme = _SCHEME.match(url)
    # Check the length first: encoding takes 60 ns per non-ASCII byte.
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
    # The result for a host that IDNA refuses is empty. Such a host is percent-encoded, as browsers do.
    return found[1] + (ada_url.idna_to_ascii(found[2].encode()).decode() or found[2])


def _origin(url: str) -> tuple[str, str, str, str] | None:
    """The origin as browsers see it, by the WHATWG URL standard. RFC 3986 can give another one."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    return parsed.protocol, parsed.username, parsed.password, parsed.host
