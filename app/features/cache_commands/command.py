"""`doi-proxy cache export`, `warm`, `stats` and `purge`."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from app.doi.name import HandleName
from app.errors import ConfigurationError, InvalidName
from app.features.command import Command, Context, set_usage, whole_number


def _add_export(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--output FILE] [--from LIST [--ask] [--column NAME] | --prefix PREFIX | --since CURSOR]")
    command.add_argument(
        "--output", default="-", metavar="FILE", help="output file, compressed if it ends in .gz; - is standard output"
    )
    command.add_argument("--from", dest="names_from", metavar="LIST", help="only the names of this list (as for warm)")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
    command.add_argument(
        "--since",
        metavar="CURSOR",
        help="only what was written or purged since the cursor of an earlier delta, or since a time; start is "
        "everything, with a cursor",
    )
    command.add_argument(
        "--ask", action="store_true", help="fetch the names of the list that are not fresh from the upstream"
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")


def _add_warm(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--column NAME] [--limit N] LIST [LIST ...]")
    command.add_argument(
        "lists",
        nargs="+",
        metavar="LIST",
        help="text file with one name a line, .csv, .bib, .ris, .jsonl or .json, each also with .gz; - is text from "
        "standard input",
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")
    command.add_argument("--limit", type=whole_number, metavar="N", help="query the upstream for at most N names")


def _add_stats(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--json] [--every-entry]")
    command.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--every-entry", action="store_true", help="count fresh, stale and negative entries even in a large store"
    )


def _add_purge(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--server URL] [--soft] [--dry-run] NAME [NAME ...] | --prefix PREFIX | --negative | --all")
    command.add_argument("names", nargs="*", metavar="NAME", help="names, in any presentation form")
    command.add_argument("--prefix", metavar="PREFIX", help="all names under this prefix, such as 10.1000")
    command.add_argument("--negative", action="store_true", help="all names that were not found, or have no values")
    command.add_argument("--all", dest="everything", action="store_true", help="all entries")
    add_server(command)
    command.add_argument("--soft", action="store_true", help="make the entries stale and keep them for outages")
    command.add_argument("--dry-run", action="store_true", help="count the entries, and change nothing")


def add_server(command: argparse.ArgumentParser) -> None:
    """Add the argument of a command that works on the store, or on a running proxy."""
    command.add_argument(
        "--server", metavar="URL", help="use the admin API of the proxy at this URL instead of the store"
    )


def _export(context: Context, namespace: argparse.Namespace) -> int:
    from app.features.cache_commands.commands import ExportChoice, export

    if namespace.since:
        return _export_changes(context, namespace)
    if namespace.names_from and namespace.prefix:
        raise ConfigurationError("--from and --prefix cannot be used together; give one of them")
    if namespace.ask and not namespace.names_from:
        raise ConfigurationError("--ask needs --from LIST to say which names to look up")
    choice = ExportChoice(namespace.names_from, read_prefix(namespace.prefix), namespace.ask, namespace.column)
    return asyncio.run(export(context.settings, choice, namespace.output))


def _export_changes(context: Context, namespace: argparse.Namespace) -> int:
    from app.features.follow.command import export_changes

    if namespace.names_from or namespace.prefix or namespace.ask:
        raise ConfigurationError("--since cannot be used with --from, --prefix or --ask; it has all names")
    return export_changes(context.settings, namespace.since, namespace.output)


def _warm(context: Context, namespace: argparse.Namespace) -> int:
    from app.features.cache_commands.commands import warm

    return asyncio.run(warm(context.settings, namespace.lists, column=namespace.column, limit=namespace.limit))


def _stats(context: Context, namespace: argparse.Namespace) -> int:
    from app.features.cache_commands.commands import show_stats

    return asyncio.run(show_stats(context.settings, as_json=namespace.as_json, every_entry=namespace.every_entry))


def _purge(context: Context, namespace: argparse.Namespace) -> int:
    from app.features.cache_commands.commands import purge, read_argument
    from app.features.cache_commands.purge import Selection

    selections = [bool(namespace.names), bool(namespace.prefix), namespace.negative, namespace.everything]
    if sum(selections) != 1:
        raise ConfigurationError("purge needs names, or exactly one of --prefix, --negative and --all")
    prefix = read_prefix(namespace.prefix)
    if namespace.server is not None:
        return _purge_remote(context, namespace, prefix)
    names = [read_argument(text) for text in namespace.names]
    selection = Selection(names, prefix, namespace.negative, namespace.everything)
    return asyncio.run(purge(context.settings, selection, soft=namespace.soft, dry_run=namespace.dry_run))


def _purge_remote(context: Context, namespace: argparse.Namespace, prefix: HandleName | None) -> int:
    from app.features.admin.command import open_client, purge_remote
    from app.features.cache_commands.commands import read_argument

    selections: list[dict[str, object]] = [{"doi": read_argument(text).text} for text in namespace.names]
    if prefix is not None:
        selections = [{"prefix": prefix.text}]
    elif namespace.negative or namespace.everything:
        selections = [{"negative": True} if namespace.negative else {"all": True}]
    client = open_client(context.settings, namespace.server)
    return purge_remote(client, selections, soft=namespace.soft, dry_run=namespace.dry_run)


def read_prefix(text: str | None) -> HandleName | None:
    """The value of --prefix. Raises ConfigurationError."""
    if not text:
        return None
    try:
        prefix = HandleName(text.rstrip("/"))
    except InvalidName as error:
        raise ConfigurationError(f"--prefix {text}: {error.message}") from error
    if not prefix.is_prefix:
        raise ConfigurationError(f"--prefix {text}: this is not a DOI prefix; a DOI prefix looks like 10.1000")
    return prefix


COMMANDS: Final = (
    Command("cache export", _add_export, _export),
    Command("cache warm", _add_warm, _warm),
    Command("cache stats", _add_stats, _stats),
    Command("cache purge", _add_purge, _purge),
)
