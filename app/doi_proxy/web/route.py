"""What kind of path a request is for. Decided once; requests are dispatched, counted and logged by it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

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
