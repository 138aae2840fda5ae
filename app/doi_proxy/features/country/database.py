"""The country of a client's address, from a database that the operator supplies (MaxMind DB format 2.0)."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import maxminddb

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.regular_file import explain_failure, require_regular

#: The largest database. Those of cities have less than 100 MB.
_MAX_BYTES: Final = 1024 * 1024 * 1024


def open_countries(path: Path) -> Callable[[str], str | None]:
    """A function from an address to an ISO 3166 country code, or to None if unknown. Raises ConfigurationError."""
    try:
        require_regular(path, _MAX_BYTES)
        reader = maxminddb.open_database(path)
    except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
        reason = explain_failure(error)
        raise ConfigurationError(f"--country-database {path}: the database cannot be used ({reason})") from error

    def country(address: str) -> str | None:
        try:
            parsed = ip_address(address.partition("%")[0])
            # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
            row = reader.get(getattr(parsed, "ipv4_mapped", None) or parsed)
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        entry = row.get("country") if isinstance(row, dict) else None
        code = entry.get("iso_code") if isinstance(entry, dict) else None
        return code if isinstance(code, str) else None

    return country
