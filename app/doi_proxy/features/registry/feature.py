"""The data files of registration agencies, imported into a SQLite store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from doi_proxy.features.feature import Extra, Feature
from doi_proxy.system.options import Settings

if TYPE_CHECKING:
    from doi_proxy.features.feature import Importer


class Registry(Feature):
    """The records of such files, which the store and the command `cache import` use."""

    name = "registry"
    summary = "the data files of registration agencies, imported into a SQLite store"
    needs = ("sqlite",)
    # The import of such a file needs it. Tables of names and URLs, and records of a store, are read without it.
    extra = Extra("registry", ("isal",))

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Never for a service, which opens the store alone."""
        return False

    @classmethod
    def importer(cls) -> Importer:
        """See Feature."""
        from doi_proxy.features.registry.import_command import IMPORTER

        return IMPORTER

    @classmethod
    def store_records(cls) -> Any:
        """See Feature."""
        from doi_proxy.features.registry.answers import RegistryAnswers

        return RegistryAnswers
