"""The host of a request: the syntax of the Host header, and a target that names a host (RFC 9112, section 3.2)."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = rb"[A-Za-z0-9._~!$&'()*+,;=-]"
#: A registered name, without escapes or with them, or an IP literal in brackets, then an optional port (RFC 3986,
#: section 3.2.2). The name may be empty. A DNS name has at most 253 characters (RFC 1035, section 2.3.4); 255 leave
#: room for a final dot.
_NAME: Final = rb"%b{0,255}|(?:%b|%%[0-9A-Fa-f]{2}){0,255}" % (_PLAIN, _PLAIN)
_HOST: Final = re.compile(rb"(?:%b|\[[0-9A-Za-z:.~_!$&'()*+,;=-]{1,64}\])(?::[0-9]{0,5})?" % _NAME)
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)


def is_host(value: bytes) -> bool:
    """Whether the value of a Host header is valid."""
    return _HOST.fullmatch(value) is not None


def split_absolute(target: bytes) -> tuple[bytes, bytes] | None:
    """The host, with its port, and the path and query of a target in absolute form. None for any other target.

    An empty path stands for "/" (RFC 9110, section 4.2.3). The host is not checked.
    """
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return None
    host, rest = found.groups()
    return host, rest if rest.startswith(b"/") else b"/" + rest
