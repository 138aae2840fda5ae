"""A request's path and query, read once and without loss: from the raw bytes, never from a decoded path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from doi_names.find_names import find_names
from doi_proxy.errors import InvalidParameter, NoDOIInOpenURL
from doi_proxy.resolver.metadata_format import MEDIA_TYPES
from doi_proxy.resolver.options import DEFAULT_OPTIONS, Action, Locatt, ResolveOptions

#: Longer paths and queries are refused with 414; browsers and front proxies stop at 8 KiB or so.
MAX_REQUEST_TARGET_BYTES: Final = 32_768
#: Parameters after this many are ignored.
MAX_PARAMETERS: Final = 200
#: Location attributes after this many are ignored.
MAX_LOCATTS: Final = 20
_SEPARATOR: Final = re.compile("[&;]")
_REPEATED: Final = {"type[]": "type", "index[]": "index"}
#: The index of a handle value is an unsigned number of 32 bits (RFC 3651, section 3.1).
MAX_INDEX: Final = 4_294_967_295
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
#: The REST API is stricter.
_INDEX: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
#: What stands for bytes that are not UTF-8.
_NOT_UTF_8: Final = "\ufffd"

#: The beginning of a name in an OpenURL (ANSI/NISO Z39.88-2004), to which library software sends names; after it, what
#: only a URI has.
_OPENURL_DOI: Final = re.compile(
    r"[\s+]*(?:doi:[\s+]*(?=\S)|(?P<uri>info:doi/|https?:/+(?:dx\.|www\.)?doi\.org/)[\s+]*(?=\S)|(?=10\.))",
    re.IGNORECASE,
)
#: The keys of a name in an OpenURL, and those of other software that has one for DOIs alone.
_OPENURL_KEYS: Final = ("id", "rft_id", "doi", "rft.doi")
#: Values of an OpenURL that are searched for a name, and the characters of each: a turn of the event loop.
_MAX_SEARCHED_VALUES: Final = 8
_MAX_SEARCHED: Final = 512


class Parameters(msgspec.Struct, frozen=True, gc=False):
    """Query or form parameters in their order; a name without "=" has the value ""."""

    pairs: tuple[tuple[str, str], ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.pairs)

    def first(self, name: str) -> str | None:
        """The first value of a parameter. None if it is absent."""
        return next((value for key, value in self.pairs if key == name), None)

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a parameter."""
        return tuple(value for key, value in self.pairs if key == name)

    def __add__(self, other: Parameters) -> Parameters:
        return Parameters(self.pairs + other.pairs)


NO_PARAMETERS: Final = Parameters()


def read_query(query: bytes, *, semicolons: bool = True) -> Parameters:
    """Read a query string: "&" and ";" separate, the first "=" splits, escapes are decoded once, "+" is a plus.

    Malformed escapes stay as they are, and bytes that are not UTF-8 become U+FFFD: a malformed option is not a reason
    to refuse a DOI. Without `semicolons` a ";" is data, as in the REST API and in an OpenURL.
    """
    if not query:
        return NO_PARAMETERS
    return Parameters(tuple(_pairs(query.decode("latin-1"), plus_is_space=False, semicolons=semicolons)))


def read_form_body(body: bytes) -> Parameters:
    """Read a form body of type application/x-www-form-urlencoded (WHATWG URL, section 5.1: "+" is a space)."""
    return Parameters(tuple(_pairs(body.decode("latin-1"), plus_is_space=True, semicolons=False)))


def _pairs(text: str, *, plus_is_space: bool, semicolons: bool) -> Iterable[tuple[str, str]]:
    parts = _SEPARATOR.split(text, MAX_PARAMETERS) if semicolons else text.split("&", MAX_PARAMETERS)
    for part in parts[:MAX_PARAMETERS]:
        if part:
            name, _, value = (part.replace("+", " ") if plus_is_space else part).partition("=")
            yield parameter_name(_decoded(name)), _decoded(value)


def parameter_name(name: str) -> str:
    """The name of a parameter. Some libraries write `type[]` for a parameter that is repeated."""
    return _REPEATED.get(name, name)


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode("utf-8", "replace")


def read_openurl(parameters: Parameters) -> tuple[str, ...]:
    """The text of the first DOI in an OpenURL, the likelier reading first; else of the first value with one inside.

    `rft_id` is a URI (ANSI/NISO Z39.88-2004, section 9). Its escapes belong to it, and not to the query. A sender that
    did not know that meant them literally. `id=doi:` and the other keys have the bare name. What other keys have may be
    about another work, so it comes with its key: a text in which a name is found. Raises NoDOIInOpenURL.
    """
    known = [value for key in _OPENURL_KEYS for value in parameters.all(key) if value.strip()]
    for value in known:
        if label := _OPENURL_DOI.match(value):
            # KEV writes a blank as "+" (section 7).
            text = f"{label[0].strip(' +')}{value[label.end() :]}"
            literal = text.replace("%", "%25")
            return (text, literal) if label["uri"] and literal != text else (literal,)
    others = [f"{key}={value}" for key, value in parameters.pairs if key not in _OPENURL_KEYS]
    for value in [*known, *others][:_MAX_SEARCHED_VALUES]:
        if find_names(value[:_MAX_SEARCHED]):
            return (value.replace("%", "%25"),)
    raise NoDOIInOpenURL


def read_options(parameters: Parameters) -> ResolveOptions:
    """The options of a resolution URL. A flag is set by its presence (`?auth=false` too). A bad `index` is ignored.

    Raises InvalidParameter for an unknown `format`.
    """
    if not parameters.pairs:
        return DEFAULT_OPTIONS
    return ResolveOptions(
        action=_action(parameters),
        types=parameters.all("type"),
        indexes=tuple(int(text) for text in parameters.all("index") if _INTEGER.fullmatch(text)),
        authoritative="auth" in parameters,
        certified="cert" in parameters,
        ignore_aliases="ignore_aliases" in parameters,
        redirection_headers="redirectionHeaders" in parameters,
        urlappend=parameters.first("urlappend"),
        locatts=_locatts(parameters),
        country=parameters.first("country") or None,
        media_type=_media_type(parameters),
    )


def _action(parameters: Parameters) -> Action:
    text = parameters.first("action")
    if text is None:
        return Action.SHOW_VALUES if "noredirect" in parameters else Action.REDIRECT
    return next((action for action in Action if action.value == text.lower()), Action.REDIRECT)


def _media_type(parameters: Parameters) -> str | None:
    text = parameters.first("format")
    if text is None:
        return None
    found = MEDIA_TYPES.get(text.lower())
    if found is None:
        # The page of another format would look like an answer in the requested one.
        raise InvalidParameter(f"format must be one of {', '.join(MEDIA_TYPES)}, not {text[:40]!r}.")
    return found


def format_query(query: bytes) -> str:
    """The query that keeps a known `format` of a request in the links of a page: "?format=…", or ""."""
    text = (read_query(query).first("format") or "").lower()
    return f"?format={text}" if text in MEDIA_TYPES else ""


def _locatts(parameters: Parameters) -> tuple[Locatt, ...]:
    """The `locatt` parameters in their order; `action=metadata` stands for the role "metadata"."""
    pairs = [text.partition(":") for text in parameters.all("locatt")[:MAX_LOCATTS] if text]
    locatts: list[Locatt] = [(name, value if colon else None) for name, colon, value in pairs]
    if (parameters.first("action") or "").lower() == "metadata":
        locatts.append(("role", "metadata"))
    return tuple(locatts)


def read_api_options(parameters: Parameters) -> ResolveOptions:
    """The options of a REST request. `is_true` reads the flags. Raises InvalidParameter for a bad `index` or `type`."""
    if not parameters.pairs:
        return DEFAULT_OPTIONS
    for text in parameters.all("type"):
        # A record cannot have such a type, so the request has a mistake. In a name, the same byte is refused too.
        if _NOT_UTF_8 in text:
            raise InvalidParameter(f"type must be UTF-8, not {text[:40]!r}.")
    for text in parameters.all("index"):
        if _INDEX.fullmatch(text) is None or int(text) > MAX_INDEX:
            raise InvalidParameter(f"index must be a whole number from 0 to {MAX_INDEX}, not {text[:40]!r}.")
    return ResolveOptions(
        types=parameters.all("type"),
        indexes=tuple(int(text) for text in parameters.all("index")),
        authoritative=is_true(parameters.first("auth")),
        certified=is_true(parameters.first("cert")),
    )


def is_true(value: str | None) -> bool:
    """A flag of the REST API: true if it is empty, "yes" or "true", false if absent or anything else."""
    return value is not None and value.lower() in ("", "yes", "true")
