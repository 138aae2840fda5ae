"""The country of a client's address, from a database that the operator brings (MaxMind DB format 2.0)."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import maxminddb

from app.errors import ConfigurationError


def open_countries(path: Path | None) -> Callable[[str], str | None]:
    """A function from an address to an ISO 3166 country code; None for all without a database. ConfigurationError."""
    if path is None:
        return lambda address: None
    try:
        reader = maxminddb.open_database(path)
    except (OSError, ValueError, maxminddb.InvalidDatabaseError) as error:
        raise ConfigurationError(f"--country-database {path}: it cannot be used ({error})") from error

    def country(address: str) -> str | None:
        try:
            given = ip_address(address.partition("%")[0])
            # A server that listens on "::" sees IPv4 clients as ::ffff:192.0.2.7 (RFC 4291, section 2.5.5.2).
            found = reader.get(getattr(given, "ipv4_mapped", None) or given)
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        inner = found.get("country") if isinstance(found, dict) else None
        code = inner.get("iso_code") if isinstance(inner, dict) else None
        return code if isinstance(code, str) else None

    return country
