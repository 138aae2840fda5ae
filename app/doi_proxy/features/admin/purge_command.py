"""`doi-proxy cache purge`, on the store or on a running proxy."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Final

from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.admin.command import ON_STORE, purge_remote
from doi_proxy.features.admin.purge import Selection, count_selected, purge
from doi_proxy.features.command import (
    Command,
    CommandContext,
    Stores,
    add_server,
    read_argument,
    read_prefix,
    set_usage,
)
from doi_proxy.proxy_client.exchange import open_client


def _add_purge(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--server URL] [--soft] [--dry-run] NAME [NAME ...] | --prefix PREFIX | --negative | --all")
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under this prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found, or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="all entries")
    add_server(command, ON_STORE)
    command.add_argument("--soft", action="store_true", help="make the entries stale and keep them for outages")
    command.add_argument("--dry-run", action="store_true", help="count the entries, and change nothing")


def _purge(context: CommandContext, namespace: argparse.Namespace) -> int:
    selections = [bool(namespace.names), bool(namespace.prefix), namespace.negative, namespace.everything]
    if sum(selections) != 1:
        raise ConfigurationError("purge needs names, or exactly one of --prefix, --negative and --all")
    prefix = read_prefix(namespace.prefix)
    if namespace.server is not None:
        return _purge_remote(context, namespace, prefix)
    names = [read_argument(text) for text in namespace.names]
    selection = Selection(names, prefix, namespace.negative, namespace.everything)
    return asyncio.run(purge_stored(context.stores, selection, soft=namespace.soft, dry_run=namespace.dry_run))


def _purge_remote(context: CommandContext, namespace: argparse.Namespace, prefix: HandleName | None) -> int:
    selections: list[dict[str, object]] = [{"doi": read_argument(text).text} for text in namespace.names]
    if prefix is not None:
        selections = [{"prefix": prefix.text}]
    elif namespace.negative or namespace.everything:
        selections = [{"negative": True} if namespace.negative else {"all": True}]
    client = open_client(context.settings, namespace.server)
    return purge_remote(client, selections, soft=namespace.soft, dry_run=namespace.dry_run)


async def purge_stored(stores: Stores, selection: Selection, *, soft: bool, dry_run: bool) -> int:
    """Delete entries, or make them stale, or only count them. Raises ConfigurationError, StoreError."""
    stores.require()
    async with stores.open() as cache:
        result = await (count_selected if dry_run else purge)(cache, selection, soft=soft)
        await cache.check()
    for name in result.absent:
        print(f"{name.text}: not in the store", file=sys.stderr)
    print(f"{'would purge' if dry_run else 'made stale' if soft else 'purged'} {result.count}")
    return 0


COMMANDS: Final = (Command("cache purge", _add_purge, _purge),)
