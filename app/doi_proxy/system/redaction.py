"""Masks the secrets in text that is shown or logged. Settings may contain URLs with credentials."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

#: Shown in place of a secret.
MASK: Final = "***"
#: Characters of another's text that a message repeats.
MAX_SHOWN: Final = 200
#: User and password of a URL (RFC 3986, section 3.2.1). They end at the last "@", as in the libraries' parsers. Before
#: the first slash is their usual place.
_AUTHORITY: Final = re.compile(r"://[^\s/]*@")
_USERINFO: Final = re.compile(r"://\S*@")
#: One parameter of a URL's query.
_PARAMETER: Final = re.compile(r"([?&;])([^=&;#\s]*)=[^&;#\s]*")
#: Words in the name of a parameter that holds a secret.
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|key|auth|cred|user", re.IGNORECASE)


def redact_value(value: Any) -> Any:
    """The value of a setting without the secrets in it: those of each text of a list."""
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def redact(text: str) -> str:
    """Mask the user, the password and the secret query parameters of the URLs in a text."""
    # The usual place first: a password there may contain "?key=". Then parameters, whose values may contain "@".
    usual = _AUTHORITY.sub(f"://{MASK}@", text)
    return _USERINFO.sub(f"://{MASK}@", _PARAMETER.sub(_mask_parameter, usual))


def _mask_parameter(match: re.Match[str]) -> str:
    # Redis clients decode the names of parameters, so `p%61ssword` is a password too.
    return f"{match[1]}{match[2]}={MASK}" if _SECRET_NAME.search(unquote(match[2])) else match[0]
