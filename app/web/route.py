"""What kind of path a request is for. Decided once; requests are dispatched, counted and logged by it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

Route = Literal["resolve", "api", "which_ra", "openurl", "home", "parse", "batch", "operation"]

#: The beginning of nearly every request. No other kind of path begins so.
DOI_PATH: Final = b"/10."
#: The JSON API. A client may write it in any case.
API_PATH: Final = b"/api/"
#: The JSON endpoints of our own. FastAPI answers them, and the limits of clients hold for them as for names.
OWN_API: Final[dict[bytes, Route]] = {b"/api/parse": "parse", b"/api/resolve": "batch"}
OWN_API_ROUTES: Final = frozenset(OWN_API.values())
#: Which RA, in lower case. A client may write it in any case.
WHICH_RA_PATHS: Final = (b"/doira/", b"/ra/")
#: The OpenURL entry (ANSI/NISO Z39.88-2004) to which library software sends names.
OPENURL_PATH: Final = b"/openurl"
#: Below it are the stylesheet and the pictures of the pages, and nothing else.
STATIC_PATH: Final = b"/static/"
#: Below it are the probes of `doi-proxy doctor` (RFC 8615), if they are switched on.
PROBE_PATH: Final = b"/.well-known/doi-proxy/probe/"
#: Their route, which the paths of operation include if probes are switched on.
PROBE_ROUTE: Final = PROBE_PATH + b"{rest:path}"
_HOME_PATHS: Final = (b"/", b"")


def find_route(method: str, path: bytes, operations: Collection[bytes] = ()) -> Route:
    """The kind of a raw path. `operations` are the paths of operation: health, metrics, documentation, static files.

    A path of no other kind is a name, and the answer says so if the name cannot be read. OPTIONS of an operation is
    answered as for a name. So is POST of the home page: the form sends the name in the body.
    """
    if path[:4] == DOI_PATH:
        return "resolve"
    if (path in operations or (operations and _is_below_operation(path, operations))) and method != "OPTIONS":
        return "operation"
    lower = path[: len(b"/doira/")].lower()
    if lower.startswith(API_PATH) or lower == API_PATH[:-1]:
        return OWN_API.get(path, "api")
    if lower.startswith(WHICH_RA_PATHS):
        return "which_ra"
    if path == OPENURL_PATH:
        return "openurl"
    return "home" if path in _HOME_PATHS and method != "POST" else "resolve"


def _is_below_operation(path: bytes, operations: Collection[bytes]) -> bool:
    is_probe = path.startswith(PROBE_PATH) and PROBE_ROUTE in operations
    return (is_probe or path.startswith(STATIC_PATH)) and path.isascii()


def api_part(path: bytes) -> bytes:
    """What follows `/api/` in a path of the JSON API."""
    return path[len(API_PATH) :]


def names_part(path: bytes) -> bytes:
    """The names in a path of Which RA: what follows its second slash."""
    return path.split(b"/", 2)[2]
