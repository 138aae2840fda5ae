"""The identifier in this service's queries, by which the service recognises a query that came back to it.

That happens if the name of the upstream leads to this service, for example because the institution's DNS maps
doi.org to it. Such a query would wait for its own answer.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from typing import Final

#: The request header with the identifier (RFC 8586, section 2).
LOOP_HEADER: Final = "CDN-Loop"
_ID_DIGITS: Final = 16


def read_loop_id() -> str:
    """The identifier: a pseudonym as in RFC 8586, section 2. It differs after each start of the service.

    The key is random, and the processes that multiprocessing starts inherit it. So the workers of a service have one
    identifier, and another service has another one.
    """
    key = multiprocessing.current_process().authkey
    return f"doi-proxy-{hashlib.sha256(b'doi-proxy loop' + key).hexdigest()[:_ID_DIGITS]}"
