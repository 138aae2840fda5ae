"""A DOI name as a "doi" URI, as the path of a URL, and inside the templates of 10320/loc."""

from __future__ import annotations

import re
from typing import Final

from doi_names.errors import NotADOI
from doi_names.name import DOIName, HandleName
from doi_names.percent import decode, encode

#: RFC 3986, appendix A: the characters that a path segment may contain besides the unreserved ones.
_SEGMENT: Final = b"!$&'()*+,;=:@"
#: The bytes that the handbook leaves unencoded in a URL. It recommends to encode "+".
_URL_PATH: Final = b"/!$&'()*,;=:@"
_TEMPLATE_PATH: Final = b"/:@!$()*,;="

_SCHEME: Final = re.compile("doi:", re.IGNORECASE | re.ASCII)
_NOT_IN_A_PATH: Final = re.compile(r"[^A-Za-z0-9\-._~%!$&'()*+,;=:@/]")
_DOT_SEGMENT: Final = re.compile(r"(?<=/)(\.\.?)/")
_LAST_DOT_SEGMENT: Final = re.compile(r"/(\.\.?)\Z")


def to_uri(name: HandleName) -> str:
    """The "doi" URI of a DOI name ("doi" URI scheme, Syntax). Raises NotADOI for any other name."""
    if not name.is_doi:
        raise NotADOI(f"Only a DOI name has a doi URI; this is not a DOI name: {name.text[:100]}")
    return "doi:" + scheme_path(name)


def from_uri(text: str) -> DOIName:
    """The DOI name of a "doi" URI. Needless escapes and literal slashes in the suffix are accepted.

    Raises NotADOI if `text` is not such a URI or has a query or fragment, and InvalidName if the name is invalid.
    """
    if not (scheme := _SCHEME.match(text)):
        raise NotADOI('A doi URI begins with "doi:".')
    path = text[scheme.end() :]
    if wrong := _NOT_IN_A_PATH.search(path):
        place = scheme.end() + wrong.start() + 1
        if wrong[0] in "?#":
            raise NotADOI(
                f'A doi URI has no query and no fragment: write the "{wrong[0]}" at character {place} '
                f"as {encode(wrong[0])}."
            )
        raise NotADOI(f"A doi URI must encode U+{ord(wrong[0]):04X}, at character {place}, with percent signs.")
    return DOIName.parse(decode(path))


def scheme_path(name: HandleName | str) -> str:
    """The part of a "doi" URI after "doi:": every slash except the first is %2F.

    The handle API accepts this form too ("doi" URI scheme, DOI Name Resolution). A suffix of one or two dots is kept.
    """
    prefix, slash, suffix = str(name).partition("/")
    return encode(prefix, _SEGMENT) + slash + encode(suffix, _SEGMENT)


def url_path(name: HandleName | str) -> str:
    """A name as the path of a URL, without a leading slash. A slash next to a dot segment becomes %2F to protect it.

    Applies all mandatory and recommended encodings (DOI Handbook, DOI Name Encoding Rules for URL Presentation).
    """
    return _keep_dot_segments(encode(str(name), _URL_PATH))


def to_url(name: HandleName | str, base: str = "https://doi.org/") -> str:
    """The URL of a name at a resolver; `base` with or without its last slash."""
    return base.removesuffix("/") + "/" + url_path(name)


def component(name: HandleName | str) -> str:
    """A name as one URL component, with only the unreserved characters unencoded: {hdl} in a 10320/loc template."""
    return encode(str(name))


def template_path(name: HandleName | str) -> str:
    """A name as {hdl:path} in a 10320/loc template: "/ : @ ! $ ( ) * , ; =" are unencoded too."""
    return encode(str(name), _TEMPLATE_PATH)


def _keep_dot_segments(path: str) -> str:
    # RFC 3986, section 5.2.4: clients remove "." and ".." segments, also at the end.
    return _LAST_DOT_SEGMENT.sub(r"%2F\1", _DOT_SEGMENT.sub(r"\1%2F", path)) if "/." in path else path
