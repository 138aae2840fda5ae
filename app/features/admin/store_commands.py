"""`doi-proxy cache export`, `warm` and `stats`."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from app.errors import ConfigurationError
from app.features.command import Command, CommandContext, read_prefix, set_usage, whole_number


def _add_export(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--output FILE] [--from LIST [--ask] [--column NAME] | --prefix PREFIX]")
    command.add_argument(
        "--output", default="-", metavar="FILE", help="output file, compressed if it ends in .gz; - is standard output"
    )
    command.add_argument("--from", dest="names_from", metavar="LIST", help="only the names of this list (as for warm)")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
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


def _export(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.admin.export import ExportChoice, export
    from app.system.interruption import run_job

    if namespace.names_from and namespace.prefix:
        raise ConfigurationError("--from and --prefix cannot be used together; give one of them")
    if namespace.ask and not namespace.names_from:
        raise ConfigurationError("--ask needs --from LIST to say which names to look up")
    choice = ExportChoice(namespace.names_from, read_prefix(namespace.prefix), namespace.ask, namespace.column)
    return run_job(export(context, choice, namespace.output))


def _warm(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.admin.warm import warm
    from app.system.interruption import run_job

    return run_job(warm(context, namespace.lists, column=namespace.column, limit=namespace.limit))


def _stats(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.admin.stats import show_stats

    return asyncio.run(show_stats(context.stores, as_json=namespace.as_json, every_entry=namespace.every_entry))


COMMANDS: Final = (
    Command("cache export", _add_export, _export),
    Command("cache warm", _add_warm, _warm),
    Command("cache stats", _add_stats, _stats),
)
