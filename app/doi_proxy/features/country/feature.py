"""The country of a client, for records that choose a location by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.features import feature
from doi_proxy.system.options import Settings, SettingsGroup

if TYPE_CHECKING:
    from doi_proxy.system.check import Finding, Inspection


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
            from doi_proxy.features.country.database import Countries

            yield from inspection.find_refusal("country_database", lambda: Countries(path))

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Open the database. Raises ConfigurationError."""
        from doi_proxy.features.country.database import Countries

        path = self.context.settings.group(CountrySettings).country_database
        return () if path is None else (Countries(path),)
