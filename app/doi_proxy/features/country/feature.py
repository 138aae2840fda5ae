"""The country of a client, for records that choose a location by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path

import maxminddb
from pydantic import Field

from doi_proxy.errors import ConfigurationError
from doi_proxy.features import feature
from doi_proxy.system.check import Finding, Inspection
from doi_proxy.system.files import explain_failure, require_regular
from doi_proxy.system.options import Settings, SettingsGroup
from doi_proxy.web.stage import Stage


class Countries(Stage):
    """Looks up countries. Raises ConfigurationError for a file that is not such a database."""

    def __init__(self, path: Path) -> None:
        try:
            # The largest database. Those of cities have less than 100 MB.
            require_regular(path, 1024 * 1024 * 1024)
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


class CountrySettings(SettingsGroup):
    """The country of a client."""

    country_database: Path | None = Field(
        None,
        description="MMDB file that maps addresses to countries, for records that choose a location by country. "
        "None is included. It needs `pip install 'doi-proxy[country]'`. Set it if the names that you "
        "serve have such records.",
    )


class Country(feature.Feature):
    """Looks up addresses in a database that the operator supplies."""

    name = "country"
    summary = "the country of a client, for records that choose a location by it"
    settings = CountrySettings
    extra = feature.Extra("country", ("maxminddb",))

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether there is a database."""
        return settings.group(CountrySettings).country_database is not None

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """A database that cannot be used."""
        path = inspection.settings.group(CountrySettings).country_database
        if path is not None:
            yield from inspection.find_refusal("country_database", lambda: Countries(path))

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Open the database. Raises ConfigurationError."""

        path = self.context.settings.group(CountrySettings).country_database
        return () if path is None else (Countries(path),)
