"""The country of a client, for records that choose a location by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.country.settings import CountrySettings
from doi_proxy.features.feature import NOTHING, Context, Extra, Feature, Opened


def open_country(context: Context) -> Opened:
    """Look up addresses in the database. Raises ConfigurationError."""
    path = context.settings.group(CountrySettings).country_database
    if path is not None:
        # Most services have no such database, and an installation without it has no library that reads it.
        from doi_proxy.features.country.database import open_countries  # noqa: PLC0415

        context.find_country = open_countries(path)
    return NOTHING


def find_database_problems(inspection: Inspection) -> Iterator[Finding]:
    """A database that cannot be used."""
    path = inspection.settings.group(CountrySettings).country_database
    if path is not None:
        from doi_proxy.features.country.database import open_countries  # noqa: PLC0415 - see open_country

        yield from inspection.find_refusal("country_database", lambda: open_countries(path))


FEATURE: Final = Feature(
    "country",
    "the country of a client, for records that choose a location by it",
    extra=Extra("country", ("maxminddb",)),
    is_on=lambda settings: settings.value("country_database") is not None,
    open=open_country,
    check=find_database_problems,
)
