"""`doi-proxy cache export` and `warm`."""

from __future__ import annotations

import argparse
from typing import Final

from app.errors import ConfigurationError
from app.features.command import (
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    Command,
    CommandContext,
    read_prefix,
    set_usage,
    whole_number,
)


def _add_export(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[-o FILE] [LIST ... [--fetch] [--column NAME] | --prefix PREFIX]")
    _add_lists(command, "*", "only the names of these lists: ")
    command.add_argument("--prefix", metavar="PREFIX", help="only the names under this prefix, such as 10.1000")
    command.add_argument(
        "--fetch", action="store_true", help="fetch the names of the lists that are not fresh from the upstream"
    )
    command.add_argument(
        "-o",
        "--output",
        default=STANDARD_OUTPUT,
        metavar="FILE",
        help="write the bundle to FILE, compressed if it ends in .gz; by default to standard output",
    )


def _add_warm(command: argparse.ArgumentParser) -> None:
    set_usage(command, "[--column NAME] [--limit N] LIST [LIST ...]")
    _add_lists(command, "+", "")
    command.add_argument("--limit", type=whole_number, metavar="N", help="query the upstream for at most N names")


def _add_lists(command: argparse.ArgumentParser, number: str, about: str) -> None:
    command.add_argument(
        "lists",
        nargs=number,
        metavar="LIST",
        help=f"{about}text file with one name a line, .csv, .bib, .ris, .jsonl or .json, each also with .gz; - is text "
        "from standard input",
    )
    command.add_argument("--column", metavar="NAME", help="column of a CSV list (default: doi)")


def _export(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.admin.export import ExportChoice, export
    from app.features.texts.list_stream import exists
    from app.system.interruption import run_job

    if namespace.lists and namespace.prefix:
        raise ConfigurationError("a list and --prefix cannot be used together; give one of them")
    # `cache import FILE` reads a bundle, so FILE may be meant as one here too.
    if absent := [path for path in namespace.lists if path != STANDARD_INPUT and not exists(path)]:
        raise ConfigurationError(f"{absent[0]}: this list does not exist; -o FILE names the bundle that is written")
    if namespace.fetch and not namespace.lists:
        raise ConfigurationError("--fetch needs a list of the names to look up")
    choice = ExportChoice(namespace.lists, read_prefix(namespace.prefix), namespace.fetch, namespace.column)
    return run_job(export(context, choice, namespace.output))


def _warm(context: CommandContext, namespace: argparse.Namespace) -> int:
    from app.features.admin.warm import warm
    from app.system.interruption import run_job

    return run_job(warm(context, namespace.lists, column=namespace.column, limit=namespace.limit))


COMMANDS: Final = (
    Command("cache export", _add_export, _export),
    Command("cache warm", _add_warm, _warm),
)
