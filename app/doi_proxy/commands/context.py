"""What the commands get: the settings of the command line, the environment and the file, and the store of these."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doi_proxy.assembly.command_stores import CommandStores
    from doi_proxy.assembly.settings import Settings
    from doi_proxy.assembly.settings.sources import SourcedValue
    from doi_proxy.features.command import Importer
    from doi_proxy.system.check import Check, Finding
    from doi_proxy.upstream.source import Source
    from doi_proxy.web.application import Application


class ParsedContext:
    """See doi_proxy.features.command.CommandContext. Flags win over the environment and the file.

    Each method imports what it needs, because most commands need little of it.
    """

    def __init__(self, namespace: argparse.Namespace) -> None:
        self._namespace = namespace

    @cached_property
    def settings(self) -> Settings:
        """See CommandContext."""
        return self.load()

    @cached_property
    def stores(self) -> CommandStores:
        """See CommandContext."""
        from doi_proxy.assembly.command_stores import CommandStores

        return CommandStores(self.settings)

    @property
    def values(self) -> dict[str, SourcedValue]:
        """The text of each setting that has been set, with its source, read again. Raises ConfigurationError."""
        from doi_proxy.assembly.settings import Settings
        from doi_proxy.assembly.settings.sources import read_sources

        return read_sources(self._flags(), os.environ, self._namespace.config, Settings.model_fields)

    def load(self) -> Settings:
        """The settings, read again. Raises ConfigurationError."""
        from doi_proxy.assembly.settings import load

        return load(self._flags(), config=self._namespace.config)

    def inspect(self, checks: Iterable[Check], *, offline: bool) -> list[Finding]:
        """See CommandContext."""
        from doi_proxy.assembly.checks import inspect

        return inspect(self.values, checks, offline=offline)

    @property
    def importers(self) -> list[Importer]:
        """See CommandContext."""
        from doi_proxy.assembly.features import installed

        return [importer for feature in installed() if (importer := feature.importer()) is not None]

    def examine_upstreams(self) -> list[Finding]:
        """See CommandContext."""
        from doi_proxy.assembly.checks import examine_upstreams

        return examine_upstreams(self.settings)

    def begin_logging(self) -> None:
        """See CommandContext."""
        from doi_proxy.assembly.lifecycle import begin_logging

        begin_logging(self.settings)

    @asynccontextmanager
    async def open_application(
        self, changes: Mapping[str, Any], *, read_only: bool = False
    ) -> AsyncIterator[Application]:
        """See CommandContext."""
        from doi_proxy.assembly.core import open_cache
        from doi_proxy.main import SuppliedParts, create

        settings = self.settings.model_copy(update=dict(changes))
        cache = open_cache(settings, read_only=read_only)
        sources: list[Source] = []

        def keep(source: Source) -> Source:
            sources.append(source)
            return source

        try:
            yield create(settings, parts=SuppliedParts(cache=cache, wrap_source=keep))
            await cache.flush()
        finally:
            for source in sources:
                await source.aclose()
            await cache.close()

    def _flags(self) -> dict[str, str | None]:
        from doi_proxy.assembly.settings import Settings
        from doi_proxy.system.options import DEPRECATED

        return {name: getattr(self._namespace, name, None) for name in (*Settings.model_fields, *DEPRECATED)}
