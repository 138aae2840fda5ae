"""The dump of a handle server, whose names are then local records."""

from __future__ import annotations

from doi_proxy.features.feature import Extra, Feature, Importer
from doi_proxy.system.options import Settings


class HandleDump(Feature):
    """Only the command `cache import` uses it."""

    name = "handle_dump"
    summary = "the dump of a handle server as local records: its names outlive it"
    needs = ("local_records",)
    extra = Extra("native", ("cryptography",))

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Never for a service."""
        return False

    @classmethod
    def importer(cls) -> Importer:
        """See Feature."""
        from doi_proxy.features.handle_dump.import_dump import IMPORTER

        return IMPORTER
