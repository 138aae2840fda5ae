"""Runs `doi-proxy cache show|refresh|purge` on a running proxy or on the store."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from doi_names.errors import NotADOI
from doi_names.name import HandleName
from doi_proxy.errors import FAILURES, ConfigurationError, CouldNotVerify, DoiProxyError
from doi_proxy.features import feature
from doi_proxy.features.admin.http import MAX_REFRESHED, REFRESH_LIMIT, describe_entry
from doi_proxy.features.admin.purge import Selection, count_selected, purge, refresh_prefix, require_name, show_counts
from doi_proxy.proxy_client import AdminClient, find_running, open_client
from doi_proxy.resolver.resolution import Conditions
from doi_proxy.system.files import print_json
from doi_proxy.upstream.source import Priority

# --- On a running proxy -------------------------------------------------------------------------------------------


def refresh_remote(client: AdminClient, names: Sequence[HandleName]) -> int:
    """Fetch names from the upstream now. Exit status 1 if the upstream did not answer for one."""
    status = 0
    for name in names:
        report = client.act("refresh", {"doi": name.text})
        status |= _print_refresh(name, None if report["refreshed"] else str(report["failure"]))
    return status


def refresh_prefix_remote(client: AdminClient, prefix: HandleName, limit: int) -> int:
    """Fetch the names under a prefix from the upstream now. Exit status 1 if the upstream did not answer for one."""
    return _print_prefix(client.act("refresh", {"prefix": prefix.text, "limit": limit}))


def purge_remote(client: AdminClient, selections: Sequence[dict[str, Any]], *, soft: bool, dry_run: bool) -> int:
    """Purge entries."""
    reports = [client.act("purge", {**selection, "soft": soft, "dry_run": dry_run}) for selection in selections]
    count = sum(report["entries"] for report in reports)
    print(f"{'would purge' if dry_run else 'made stale' if soft else 'purged'} {count}")
    if any(report.get("pending") for report in reports):
        raise DoiProxyError(
            "The store failed. It and other instances get the purge once it is back; do not restart now."
        )
    return 0


# --- On the store -------------------------------------------------------------------------------------------------


async def show_stored(stores: feature.Stores, names: Sequence[HandleName]) -> int:
    """Print the entries of names in the store as JSON. Exit status 1 if one has none."""
    stores.require()
    async with stores.open(read_only=True) as cache:
        entries = {name.key: await cache.find(name.key, newest=True) for name in names}

    def find(name: HandleName) -> dict[str, Any]:
        entry = entries[name.key]
        if entry is None:
            raise DoiProxyError(f"{name.text}: not in the store")
        return {**describe_entry(entry, time.time()), "tier": "store"}

    return _print_each(names, find)


async def refresh_stored(stores: feature.Stores, names: Sequence[HandleName]) -> int:
    """Fetch names from the upstream now, into the store. Exit status 1 if the upstream did not answer for one."""
    status = 0
    async with stores.open_online() as parts:
        for name in names:
            failure: CouldNotVerify | None = None
            try:
                conditions = Conditions(authoritative=True, priority=Priority.BULK)
                failure = (await parts.resolver.resolve(name, conditions)).failure
            except CouldNotVerify as error:
                failure = error
            status |= _print_refresh(name, None if failure is None else failure.token)
    return status


async def refresh_prefix_stored(stores: feature.Stores, prefix: HandleName, limit: int) -> int:
    """The same as `refresh_prefix_remote`, in the store."""
    stores.require()
    async with stores.open_online() as parts:
        result = await refresh_prefix(parts.cache, parts.resolver, prefix, limit=limit)
    return _print_prefix(asdict(result))


def _print_prefix(report: dict[str, Any]) -> int:
    print(f"refreshed {report['refreshed']}, failed {report['failed']}, left out {report['left_out']}")
    if report["failure"] is not None:
        print(f"the last failure is {report['failure']}; the entries are unchanged", file=sys.stderr)
    elif report["left_out"]:
        print("run the command again for the rest; the oldest answers come first", file=sys.stderr)
    return 1 if report["failed"] else 0


def _print_refresh(name: HandleName, failure: str | None) -> int:
    print(f"{name.text}: {'refreshed' if failure is None else f'could not verify ({failure}); the entry is unchanged'}")
    return 0 if failure is None else 1


def _print_each(names: Sequence[HandleName], find: Any) -> int:
    status = 0
    for name in names:
        try:
            print_json(find(name))
        except FAILURES as error:
            print(f"doi-proxy: {error.message}", file=sys.stderr)
            status = 1
    return status


# --- The command line ---------------------------------------------------------------------------------------------


#: What `--server` does for the commands on the store.
ON_STORE: Final = "use the admin API of the proxy at this URL instead of the store"


def _add_show(command: argparse.ArgumentParser) -> None:
    feature.set_usage(command, "[--server URL] NAME [NAME ...] | [--every-entry]")
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="names, in any presentation form; without one, the store is counted"
    )
    command.add_argument(
        "--every-entry", action="store_true", help="count fresh, stale and negative entries even in a large store"
    )
    feature.add_server(command, ON_STORE)


def _add_refresh(command: argparse.ArgumentParser) -> None:
    feature.set_usage(command, "[--server URL] NAME [NAME ...] | --prefix PREFIX [--limit N]")
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="the names of the cache under this prefix, oldest first")
    command.add_argument("--limit", type=feature.whole_number, metavar="N", help="fetch at most N names of the prefix")
    feature.add_server(command, ON_STORE)


def _show(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    if not namespace.names:
        if namespace.server is not None:
            raise ConfigurationError("--server needs names; doi-proxy status --server URL has the counts of that proxy")
        return asyncio.run(show_counts(context.stores, every_entry=namespace.every_entry))
    if namespace.every_entry:
        raise ConfigurationError("--every-entry is for the counts of the whole store; give no names")
    names = [feature.read_argument(text) for text in namespace.names]
    if namespace.server is not None:
        client = open_client(context.settings, namespace.server)
        return _print_each(names, lambda name: client.show(name.text))
    return asyncio.run(show_stored(context.stores, names))


def _refresh(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    if bool(namespace.names) == bool(namespace.prefix):
        raise ConfigurationError("refresh needs names, or --prefix")
    if (prefix := feature.read_prefix(namespace.prefix)) is not None:
        return _refresh_prefix(context, namespace, prefix)
    names = [feature.read_argument(text) for text in namespace.names]
    try:
        for name in names:
            require_name(name)
    except NotADOI as error:
        raise ConfigurationError(error.message) from error
    if (client := find_running(context.settings, namespace.server)) is not None:
        return refresh_remote(client, names)
    return asyncio.run(refresh_stored(context.stores, names))


def _refresh_prefix(context: feature.CommandContext, namespace: argparse.Namespace, prefix: HandleName) -> int:
    limit = REFRESH_LIMIT if namespace.limit is None else namespace.limit
    if not 1 <= limit <= MAX_REFRESHED:
        raise ConfigurationError(f"--limit {limit}: give a number from 1 to {MAX_REFRESHED}")
    if (client := find_running(context.settings, namespace.server)) is not None:
        return refresh_prefix_remote(client, prefix, limit)
    return asyncio.run(refresh_prefix_stored(context.stores, prefix, limit))


def _add_purge(command: argparse.ArgumentParser) -> None:
    feature.set_usage(
        command, "[--server URL] [--soft] [--dry-run] NAME [NAME ...] | --prefix PREFIX | --negative | --all"
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under this prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found, or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="all entries")
    feature.add_server(command, ON_STORE)
    command.add_argument("--soft", action="store_true", help="make the entries stale and keep them for outages")
    command.add_argument("--dry-run", action="store_true", help="count the entries, and change nothing")


def _purge(context: feature.CommandContext, namespace: argparse.Namespace) -> int:
    selections = [bool(namespace.names), bool(namespace.prefix), namespace.negative, namespace.everything]
    if sum(selections) != 1:
        raise ConfigurationError("purge needs names, or exactly one of --prefix, --negative and --all")
    prefix = feature.read_prefix(namespace.prefix)
    if namespace.server is not None:
        return _purge_remote(context, namespace, prefix)
    names = [feature.read_argument(text) for text in namespace.names]
    selection = Selection(names, prefix, namespace.negative, namespace.everything)
    return asyncio.run(purge_stored(context.stores, selection, soft=namespace.soft, dry_run=namespace.dry_run))


def _purge_remote(context: feature.CommandContext, namespace: argparse.Namespace, prefix: HandleName | None) -> int:
    selections: list[dict[str, object]] = [{"doi": feature.read_argument(text).text} for text in namespace.names]
    if prefix is not None:
        selections = [{"prefix": prefix.text}]
    elif namespace.negative or namespace.everything:
        selections = [{"negative": True} if namespace.negative else {"all": True}]
    client = open_client(context.settings, namespace.server)
    return purge_remote(client, selections, soft=namespace.soft, dry_run=namespace.dry_run)


async def purge_stored(stores: feature.Stores, selection: Selection, *, soft: bool, dry_run: bool) -> int:
    """Delete entries, or make them stale, or only count them. Raises ConfigurationError, StoreError."""
    stores.require()
    async with stores.open() as cache:
        result = await (count_selected if dry_run else purge)(cache, selection, soft=soft)
        await cache.check()
    for name in result.absent:
        print(f"{name.text}: not in the store", file=sys.stderr)
    print(f"{'would purge' if dry_run else 'made stale' if soft else 'purged'} {result.count}")
    return 0


COMMANDS: Final = (
    feature.Command("cache show", _add_show, _show),
    feature.Command("cache refresh", _add_refresh, _refresh),
    feature.Command("cache purge", _add_purge, _purge),
)
