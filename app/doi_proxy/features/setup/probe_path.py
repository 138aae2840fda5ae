"""The path of the probes of `doi-proxy doctor`."""

from __future__ import annotations

from typing import Final

#: Below it are the probes (RFC 8615), if they are switched on.
PROBE_PATH: Final = b"/.well-known/doi-proxy/probe/"
#: Their route.
PROBE_ROUTE: Final = PROBE_PATH + b"{rest:path}"
