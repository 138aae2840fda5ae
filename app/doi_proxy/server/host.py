"""The syntax of the Host header (RFC 9112, section 3.2; RFC 3986, section 3.2.2)."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = rb"[A-Za-z0-9._~!$&'()*+,;=-]"
#: A registered name, without escapes or with them, or an IP literal in brackets, then an optional port. The name may be
#: empty. A DNS name has at most 253 characters (RFC 1035, section 2.3.4); 255 leave room for a final dot.
_NAME: Final = rb"%b{0,255}|(?:%b|%%[0-9A-Fa-f]{2}){0,255}" % (_PLAIN, _PLAIN)
_HOST: Final = re.compile(rb"(?:%b|\[[0-9A-Za-z:.~_!$&'()*+,;=-]{1,64}\])(?::[0-9]{0,5})?" % _NAME)


def is_host(value: bytes) -> bool:
    """Whether the value of a Host header is valid."""
    return _HOST.fullmatch(value) is not None
