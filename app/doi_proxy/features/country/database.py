"""The country of a client's address, from a database that the operator supplies (MaxMind DB format 2.0)."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Final

import maxminddb

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import explain_failure, require_regular
from doi_proxy.web.stage import Stage

#: The largest database. Those of cities have less than 100 MB.
_MAX_BYTES: Final = 1024 * 1024 * 1024


class Countries(Stage):
    """Looks up countries. Raises ConfigurationError for a file that is not such a database."""

    def __init__(self, path: Path) -> None:
        try:
            require_regular(path, _MAX_BYTES)
            self._reader = maxminddb.open_database(path)
        except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
            reason = explain_failure(error)
            raise ConfigurationError(f"--country-database {path}: the database cannot be used ({reason})") from error

    def country(self, address: str) -> str | None:
        """See Stage."""
        try:
            parsed = ip_address(address.partition("%")[0])
            # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
            row = self._reader.get(getattr(parsed, "ipv4_mapped", None) or parsed)
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        entry = row.get("country") if isinstance(row, dict) else None
        code = entry.get("iso_code") if isinstance(entry, dict) else None
        return code if isinstance(code, str) else None
