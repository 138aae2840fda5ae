"""Secrets taken out of text that people and logs see: settings may hold URLs with credentials."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

#: Shown in place of a secret.
MASK: Final = "***"
#: User and password of a URL (RFC 3986, section 3.2.1). The last "@" ends them: the libraries read it so too.
_USERINFO: Final = re.compile(r"://\S*@")
#: One parameter of a URL's query.
_PARAMETER: Final = re.compile(r"([?&;])([^=&;#\s]*)=[^&;#\s]*")
#: Words in the name of a parameter that holds a secret.
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|key|auth|cred|user", re.IGNORECASE)


def redact(text: str) -> str:
    """The text with the user, the password and the secret query parameters of its URLs masked."""
    return _USERINFO.sub(f"://{MASK}@", _PARAMETER.sub(_mask_parameter, text))


def _mask_parameter(found: re.Match[str]) -> str:
    # Clients of Redis decode the names of parameters, so p%61ssword is one too.
    return f"{found[1]}{found[2]}={MASK}" if _SECRET_NAME.search(unquote(found[2])) else found[0]
