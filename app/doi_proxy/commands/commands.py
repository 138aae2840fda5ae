"""The commands of `doi-proxy`, in the order of its help. Only the module of the command that runs is imported."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from doi_proxy.features.feature import Command, CommandContext, Importer

if TYPE_CHECKING:
    from doi_proxy.assembly.checks import CommandStores
    from doi_proxy.assembly.settings import Settings
    from doi_proxy.assembly.settings.sources import SourcedValue
    from doi_proxy.system.check import Check, Finding
    from doi_proxy.upstream.source import Source
    from doi_proxy.web.application import Application


_ALL: Final = {
    "serve": ("answer requests over HTTP", "doi_proxy.commands.commands"),
    "resolve": ("resolve the names of lists: one row with a verdict for each name", "doi_proxy.features.lists.command"),
    "demo": (
        "start a proxy with a stand-in for the upstream, and an outage by a key",
        "doi_proxy.features.setup.command",
    ),
    "config": ("print the settings in force, with secrets masked", "doi_proxy.commands.commands"),
    "check": (
        "examine settings, files, store and upstream, or whether the running proxy is ready",
        "doi_proxy.features.setup.command",
    ),
    "setup": (
        "ask six questions and write the settings, the unit, the front proxy's file and the alerts",
        "doi_proxy.features.setup.command",
    ),
    "gen-config": (
        "print the configuration of a front proxy, or a systemd unit",
        "doi_proxy.features.setup.command",
    ),
    "doctor": ("probe the front proxy and name what to change in it", "doi_proxy.features.setup.command"),
    "runbook": (
        "print what an alert means, what to look at and what to do, or a page of the manual",
        "doi_proxy.features.setup.command",
    ),
    "status": ("print what a running proxy is doing", "doi_proxy.features.status.command"),
    "explain": ("explain the answer that a client gets about a name", "doi_proxy.features.explain.command"),
    "parse": (
        "tell whether a text is a DOI name, a handle, a prefix or none of them",
        "doi_proxy.features.texts.command",
    ),
    "mcp": ("run an MCP server, so AI assistants can check references", "doi_proxy.features.assistants.command"),
    "cache export": (
        "write records to a bundle: all, the names of lists, or the names under a prefix",
        "doi_proxy.features.bundles.command",
    ),
    "cache import": (
        "read a bundle or files of Crossref or DataCite into the store; no older record replaces a newer one",
        "doi_proxy.features.bundles.command",
    ),
    "cache warm": (
        "fetch the names of lists that are not fresh in the store, as a bulk job",
        "doi_proxy.features.lists.command",
    ),
    "cache show": (
        "print the cached answers about names, or how many entries the store has, as JSON",
        "doi_proxy.features.admin.command",
    ),
    "cache refresh": ("fetch names from the upstream now, fresh or not", "doi_proxy.features.admin.command"),
    "cache purge": (
        "delete entries, also in every running proxy on the same store",
        "doi_proxy.features.admin.command",
    ),
}
#: The help of each command, and the module whose COMMANDS have it. A command goes with the folder of its feature.
KNOWN_COMMANDS: Final = {
    name: (text, module) for name, (text, module) in _ALL.items() if find_spec(module.rpartition(".")[0]) is not None
}
#: The help of commands that have commands of their own.
GROUPS: Final = {"cache": "export, import, warm, show, refresh or purge the records of the store"}


class ParsedContext:
    """See doi_proxy.features.feature.CommandContext. Flags win over the environment and the file.

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
        from doi_proxy.assembly.checks import CommandStores

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
        from doi_proxy.main import SuppliedParts, create

        sources: list[Source] = []

        def keep(source: Source) -> Source:
            sources.append(source)
            return source

        async with self.stores.open(read_only=read_only) as cache:
            try:
                parts = SuppliedParts(cache=cache, wrap_source=keep)
                yield create(self.settings.model_copy(update=dict(changes)), parts=parts)
            finally:
                for source in sources:
                    await source.aclose()

    def _flags(self) -> dict[str, str | None]:
        from doi_proxy.assembly.settings import Settings
        from doi_proxy.system.options import DEPRECATED

        return {name: getattr(self._namespace, name, None) for name in (*Settings.model_fields, *DEPRECATED)}


def _serve(context: CommandContext, _: argparse.Namespace) -> int:
    from doi_proxy.commands import imports

    imports.skip_pydantic_v1()
    imports.skip_pydantic_plugins()
    with imports.collect_nothing():
        imports.import_aiohttp()
        imports.defer_openapi_models()
        # The web framework takes half a second to import, and no other command needs it.
        from doi_proxy.commands.serve import serve

    return serve(context.load)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sources", action="store_true", help="print where each setting was set, as a comment")
    command.add_argument(
        "--format", dest="form", choices=("env", "toml"), default="env", help="environment variables, or a TOML file"
    )


def _config(context: CommandContext, namespace: argparse.Namespace) -> int:
    from doi_proxy.assembly.settings import build
    from doi_proxy.commands.show import show_settings

    return show_settings(build(context.values), context.values, namespace.form, sources=namespace.sources)


COMMANDS: Final = (Command("serve", lambda command: None, _serve), Command("config", _add_config, _config))
