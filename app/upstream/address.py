"""The request target of an upstream query: a path and, with flags, a query string (RFC 9112, section 3.2.1).

The path is the form of the "doi" URI scheme: bytes of the UTF-8 name in unreserved, sub-delims, ":" and "@"
(RFC 3986, section 3.3) are literal. All others are percent-encoded in upper-case hexadecimal, so a slash inside
the suffix is "%2F". The prefix and its slash are literal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.doi.percent import encode

#: sub-delims, ":" and "@".
_LITERAL: Final = b"!$&'()*+,;=:@"
#: In a list of names a comma separates (DOI Handbook, "Which RA?"), so one inside a name is encoded.
_LITERAL_IN_LIST: Final = _LITERAL.replace(b",", b"")
_ENCODED_SLASH: Final = "%2F"


def handle_query_url(
    base: str, name: str, *, authoritative: bool = False, certified: bool = False, literal_slashes: bool = False
) -> str:
    """The URL of a query about one handle: `{base}/api/handles/{name}`, with its flags."""
    flags = "&".join(f"{flag}=true" for flag, on in (("auth", authoritative), ("cert", certified)) if on)
    url = f"{base.rstrip('/')}/api/handles/{encode_name(name, literal_slashes=literal_slashes)}"
    return f"{url}?{flags}" if flags else url


def agency_url(base: str, names: Sequence[str], *, literal_slashes: bool = False) -> str:
    """The URL of a query about the registration agencies of names or prefixes: `{base}/ra/{name},{name}…`."""
    listed = (encode_name(name, literal_slashes=literal_slashes, literal=_LITERAL_IN_LIST) for name in names)
    return f"{base.rstrip('/')}/ra/{','.join(listed)}"


def encode_name(name: str, *, literal_slashes: bool = False, literal: bytes = _LITERAL) -> str:
    """Encode a name as a URL path. `literal_slashes` is for servers and front proxies that refuse "%2F"."""
    parts = name.split("/")
    # A leading slash belongs to the name. A literal one would be merged with the slash before it.
    slashes = ["/" if literal_slashes or (at == 0 and parts[0]) else _ENCODED_SLASH for at in range(len(parts) - 1)]
    dots = [at for at, part in enumerate(parts) if part in (".", "..")]
    for at in dots:
        # Clients and proxies remove dot segments (RFC 3986, section 5.2.4). Joined to its neighbour, it is not one.
        if slashes:
            slashes[max(at - 1, 0)] = _ENCODED_SLASH
    if dots and not slashes:
        return name.replace(".", "%2E")
    encoded = [encode(part, literal) for part in parts]
    return encoded[0] + "".join(slash + part for slash, part in zip(slashes, encoded[1:], strict=True))
