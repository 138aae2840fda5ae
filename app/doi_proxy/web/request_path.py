"""A request's path and query, read once and without loss: from the raw bytes, never from a decoded path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from doi_names.find_names import find_names
from doi_proxy.errors import InvalidParameter, NoDOIInOpenURL
from doi_proxy.resolver.resolution import DEFAULT_OPTIONS, MEDIA_TYPES, Action, Locatt, ResolveOptions

#: The client of a request without a readable address, as over a Unix socket; all of them share it.
UNKNOWN_CLIENT: Final = "unknown"
#: The lengths in bits of the prefixes that make addresses one client (RFC 4632, section 3.1; RFC 4291, section 2.3): a
#: campus network, and a household, which has a /64.
IPV4_PREFIX: Final = 24
IPV6_PREFIX: Final = 64
#: The beginning of an IPv4 address in IPv6 (RFC 4291, section 2.5.5.2).
_MAPPED: Final = bytes(10) + b"\xff\xff"
_IPV4_BYTES: Final = 4


def client_of(address: str, ipv6_prefix: int = IPV6_PREFIX) -> str:
    """The network of an address in CIDR notation; UNKNOWN_CLIENT where it cannot be read."""
    # No cache: it would keep whole addresses. This takes a fifth of the time of ipaddress.
    packed = _read_bytes(address)
    if packed is None:
        return UNKNOWN_CLIENT
    family, prefix = (AF_INET, IPV4_PREFIX) if len(packed) == _IPV4_BYTES else (AF_INET6, ipv6_prefix)
    free_bits = 8 * len(packed) - prefix
    network = int.from_bytes(packed) >> free_bits << free_bits
    return f"{inet_ntop(family, network.to_bytes(len(packed)))}/{prefix}"


def read_address(address: str) -> IPv4Address | IPv6Address | None:
    """The address of a client as a socket or a proxy shows it; None where it cannot be read."""
    packed = _read_bytes(address)
    return None if packed is None else ip_address(packed)


def _read_bytes(address: str) -> bytes | None:
    """The 4 or 16 bytes of an address."""
    # A zone identifier names an interface of this host, not the client (RFC 4007, section 11).
    text, _, _ = address.partition("%")
    try:
        return inet_pton(AF_INET, text)
    except (OSError, ValueError):
        pass
    try:
        packed = inet_pton(AF_INET6, text)
    except (OSError, ValueError):
        return None
    # A dual-stack socket shows IPv4 clients so (RFC 4291, section 2.5.5.2).
    return packed.removeprefix(_MAPPED)


#: A header field as ASGI has it: its name in lower case, and its value.
Header = tuple[bytes, bytes]


def header_lines(headers: Iterable[Header]) -> bytes:
    """Header fields as lines (RFC 9112, section 5)."""
    return b"\r\n".join([*map(b": ".join, headers), b""])


@lru_cache(maxsize=4096)
def http_date(seconds: int) -> bytes:
    """A date (RFC 9110, section 5.6.7) from whole seconds since the epoch."""
    days, second = divmod(seconds, 86_400)
    return b"%b%02d:%02d:%02d GMT" % (_day(days), second // 3_600, second // 60 % 60, second % 60)


@lru_cache(maxsize=256)
def _day(days: int) -> bytes:
    """The part of a date before the time. Records expire at many different seconds, but on few days."""
    return formatdate(days * 86_400, usegmt=True).encode()[:-12]


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

#: The beginning of a name in an OpenURL (ANSI/NISO Z39.88-2004), to which library software sends names; after it, what
#: only a URI has.
_OPENURL_DOI: Final = re.compile(
    r"[\s+]*(?:doi:[\s+]*(?=\S)|(?P<uri>info:doi/|https?:/+(?:dx\.|www\.)?doi\.org/)[\s+]*(?=\S)|(?=10\.))",
    re.IGNORECASE,
)
#: The keys of a name in an OpenURL, and those of other software that has one for DOIs alone.
_OPENURL_KEYS: Final = ("id", "rft_id", "doi", "rft.doi")
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
    # Values of an OpenURL that are searched for a name, and the characters of each: a turn of the event loop.
    for value in [*known, *others][:8]:
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
        # What stands for bytes that are not UTF-8.
        if "\ufffd" in text:
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


#: The routes of the core. Features have routes of their own: see Paths.
ROUTES: Final = ("resolve", "api", "which_ra", "openurl", "home", "operation")
#: The route that prepared answers are counted and logged under.
PREPARED: Final = "prepared"
#: The beginning of nearly every request. No other kind of path begins so.
DOI_PATH: Final = b"/10."
#: The JSON API. A client may write it in any case.
API_PATH: Final = b"/api/"
#: Which RA, in lower case. A client may write it in any case.
WHICH_RA_PATHS: Final = (b"/doira/", b"/ra/")
#: The OpenURL entry (ANSI/NISO Z39.88-2004) to which library software sends names, in any case.
OPENURL_PATH: Final = b"/openurl"
#: Below it are the stylesheet and the pictures of the pages, and nothing else.
STATIC_PATH: Final = b"/static/"
_HOME_PATHS: Final = (b"/", b"")
#: A segment "." or ".." of a decoded path (RFC 3986, section 3.3). "\\" and ";" end a segment for some front proxies.
_DOT_SEGMENT: Final = re.compile(rb"[/\\]\.\.?(?:[/\\;]|\Z)")


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths that are not names and that features add.

    `operations` are whole paths: health, metrics, documentation. `below` are the beginnings of others, in ASCII: static
    files. No page of another site may read the answers of `private` ones. `gated_below` are the beginnings of paths
    behind a gate, whatever the method. `own_api` are JSON endpoints by path, each with its route: FastAPI answers them,
    and the limits of clients hold for them as for names. A path that ends with a slash stands for all below it.
    """

    operations: frozenset[bytes] = frozenset()
    below: tuple[bytes, ...] = ()
    gated_below: tuple[bytes, ...] = ()
    private: frozenset[bytes] = frozenset()
    own_api: Mapping[bytes, str] = field(default_factory=dict)


NO_PATHS: Final = Paths()


def find_route(method: str, path: bytes, paths: Paths = NO_PATHS) -> str:
    """The route of a raw path.

    A path of no other kind is a name, and the answer says so if the name cannot be read. So is a path below a gate with
    dot segments: it never reaches the gate, and no name begins so. OPTIONS of an operation is
    answered as for a name. So is POST of the home page: the form sends the name in the body.
    """
    if path[:4] == DOI_PATH:
        return "resolve"
    if path.startswith(paths.gated_below):
        # A front proxy compares the path without dot segments, and may pass it on with them.
        return "resolve" if _DOT_SEGMENT.search(unquote_to_bytes(path)) else "operation"
    is_operation = path in paths.operations or (path.startswith(paths.below) and path.isascii())
    if is_operation and method != "OPTIONS":
        return "operation"
    own = paths.own_api.get(path)
    if own is not None:
        return own
    lower = path[: len(b"/doira/")].lower()
    if lower.startswith(API_PATH) or lower == API_PATH[:-1]:
        return paths.own_api.get(path[: path.find(b"/", len(API_PATH)) + 1] or path, "api")
    if lower.startswith(WHICH_RA_PATHS):
        return "which_ra"
    if path.lower() == OPENURL_PATH:
        return "openurl"
    return "home" if path in _HOME_PATHS and method != "POST" else "resolve"


def api_part(path: bytes) -> bytes:
    """What follows `/api/` in a path of the JSON API."""
    return path[len(API_PATH) :]


def names_part(path: bytes) -> bytes:
    """The names in a path of Which RA: what follows its second slash."""
    return path.split(b"/", 2)[2]
