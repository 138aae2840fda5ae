"""The request targets that name a host (RFC 9112, section 3.2.2)."""

from __future__ import annotations

import re
from typing import Final

_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)


def split_absolute(target: bytes) -> tuple[bytes, bytes] | None:
    """The host, with its port, and the path and query of a target in absolute form. None for any other target.

    An empty path stands for "/" (RFC 9110, section 4.2.3). The host is not checked.
    """
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return None
    host, rest = found.groups()
    return host, rest if rest.startswith(b"/") else b"/" + rest
